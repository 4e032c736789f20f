// What a PE remembers of its last dispatch, privately: the memory behind device::ep::Exchange.
#pragma once

#include <vector>

#include "ep/buffers.hpp"

namespace railshmem::ep {

class Routing {
 public:
  Routing(const Config& config, int n_pes, int pe, const NodeMap& nodes,
          const device::ep::Buffers& buffers);
  Routing(const Routing&) = delete;
  Routing& operator=(const Routing&) = delete;

  // What kernels receive. Points into this object.
  const device::ep::Exchange& view() const { return exchange_; }
  // By source PE.
  const std::vector<int64_t>& received() const { return received_; }
  // Expert-major: by expert of this PE; else empty.
  const std::vector<device::ep::ExpertRows>& experts() const { return experts_; }
  // What this PE received: arrivals, or in the expert-major layout the rows of all blocks.
  int64_t rows() const { return static_cast<int64_t>(summary_.rows); }
  const device::ep::Refusal& refusal() const { return summary_.refusal; }

 private:
  std::vector<device::ep::Home> homes_;
  std::vector<int32_t> ids_;
  std::vector<device::ep::Marks> marks_;
  std::vector<uint32_t> totals_;
  std::vector<uint64_t> bases_;
  std::vector<uint64_t> expert_bases_;
  std::vector<uint64_t> member_rows_;
  std::vector<uint64_t> block_starts_;
  std::vector<device::ep::Stream> streams_;
  std::vector<int64_t> received_;
  std::vector<device::ep::ExpertRows> experts_;
  device::ep::Summary summary_{0, 0, 0, {-1, 0, 0}};
  arch::GridWords grid_{};
  device::ep::Exchange exchange_;
};

}  // namespace railshmem::ep
