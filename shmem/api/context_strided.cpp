// Strided puts and gets of a context (OpenSHMEM 1.5, sections 9.6.1.3 and 9.6.1.6).
#include <cstring>
#include <vector>

#include "shmem/api/context.hpp"
#include "shmem/api/runtime_parts.hpp"

namespace railshmem {
namespace {

// Elements gathered before they travel as one piece.
constexpr std::size_t kGathered = 32 * 1024;

void check_strides(const char* call, std::ptrdiff_t dst, std::ptrdiff_t sst, std::size_t nelems,
                   std::size_t element_bytes) {
  if (dst < 1 || sst < 1)
    fail(ErrorKind::argument, call, ": strides dst ", dst, " and sst ", sst,
         ": expected at least 1");
  if (element_bytes == 0 || element_bytes > 16 || (element_bytes & (element_bytes - 1)) != 0)
    fail(ErrorKind::argument, call, ": elements of ", element_bytes,
         " bytes: expected 1, 2, 4, 8 or 16");
  if (nelems > 0 && (nelems - 1) > SIZE_MAX / 16 / static_cast<std::size_t>(std::max(dst, sst)))
    fail(ErrorKind::argument, call, ": ", nelems, " elements, strides ", dst, " and ", sst,
         ", are more than memory has");
}

// From the first to the end of the last element.
std::size_t extent(std::ptrdiff_t stride, std::size_t nelems, std::size_t element_bytes) {
  return nelems == 0 ? 0 : ((nelems - 1) * static_cast<std::size_t>(stride) + 1) * element_bytes;
}

}  // namespace

void Context::iput(void* dest, const void* source, std::ptrdiff_t dst, std::ptrdiff_t sst,
                   std::size_t nelems, std::size_t element_bytes, int pe) {
  check_strides("shmem_iput", dst, sst, nelems, element_bytes);
  const int world = check("shmem_iput", "dest", dest, extent(dst, nelems, element_bytes), pe);
  const std::size_t to_step = static_cast<std::size_t>(dst) * element_bytes;
  const std::size_t from_step = static_cast<std::size_t>(sst) * element_bytes;
  auto* to = static_cast<char*>(dest);
  const auto* from = static_cast<const char*>(source);
  if (dst == 1 && sst == 1)
    return put_checked(to, from, nelems * element_bytes, device::no_signal(), world,
                       Reuse::at_once);
  // From here on the source is read by plain loads.
  const HeapView view(parts_.memory, source, extent(sst, nelems, element_bytes));
  from = view.data();
  if (reaches(world) && parts_.memory.on_gpu()) {
    std::vector<GpuSide::Piece> pieces;
    for (std::size_t i = 0; i < nelems; ++i)
      pieces.push_back(
          {device::in_peer(ctx_, to + i * to_step, world), from + i * from_step, element_bytes});
    return parts_.gpu->copy_all(pieces);
  }
  if (dst == 1 && !reaches(world)) {  // one piece there: gather here
    std::vector<char> gathered;
    for (std::size_t i = 0; i < nelems; to += gathered.size()) {
      gathered.clear();
      for (; i < nelems && gathered.size() < kGathered; ++i)
        gathered.insert(gathered.end(), from + i * from_step, from + i * from_step + element_bytes);
      put_checked(to, gathered.data(), gathered.size(), device::no_signal(), world, Reuse::at_once);
    }
    return;
  }
  for (std::size_t i = 0; i < nelems; ++i)
    put_checked(to + i * to_step, from + i * from_step, element_bytes, device::no_signal(), world,
                Reuse::at_once);
}

void Context::iget(void* dest, const void* source, std::ptrdiff_t dst, std::ptrdiff_t sst,
                   std::size_t nelems, std::size_t element_bytes, int pe) {
  check_strides("shmem_iget", dst, sst, nelems, element_bytes);
  const std::size_t reach = extent(sst, nelems, element_bytes);
  const int world = check("shmem_iget", "source", source, reach, pe);
  const std::size_t to_step = static_cast<std::size_t>(dst) * element_bytes;
  const std::size_t from_step = static_cast<std::size_t>(sst) * element_bytes;
  auto* to = static_cast<char*>(dest);
  const auto* from = static_cast<const char*>(source);
  if (reaches(world) && parts_.memory.on_gpu()) {
    std::vector<GpuSide::Piece> pieces;
    for (std::size_t i = 0; i < nelems; ++i)
      pieces.push_back(
          {to + i * to_step, device::in_peer(ctx_, from + i * from_step, world), element_bytes});
    return parts_.gpu->copy_all(pieces);
  }
  if (reaches(world)) {
    for (std::size_t i = 0; i < nelems; ++i)
      device::get<device::Transport::p2p, arch::Scope::thread>(
          &parts_.context, to + i * to_step, from + i * from_step, element_bytes, world);
    return;
  }
  // One trip per piece rather than per element: what lies between comes along.
  std::vector<char> piece;
  const std::size_t per_piece = std::max<std::size_t>(1, kGathered / from_step);
  for (std::size_t first = 0; first < nelems; first += per_piece) {
    const std::size_t count = std::min(per_piece, nelems - first);
    piece.resize(extent(sst, count, element_bytes));
    const char* start = from + first * from_step;
    if (!get_by_nic(piece.data(), start, piece.size(), world)) parts_.raise_stopped();
    for (std::size_t i = 0; i < count; ++i)
      parts_.memory.copy(to + (first + i) * to_step, piece.data() + i * from_step, element_bytes);
  }
}

}  // namespace railshmem
