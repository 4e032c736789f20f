#include "ep/config.hpp"

#include <algorithm>

#include "shmem/base/error.hpp"

namespace railshmem::ep {
namespace {

struct TypeInfo {
  Type type;
  const char* name;
  uint64_t bytes;
};
constexpr TypeInfo kTypes[] = {
    {Type::bf16, "bfloat16", 2},        {Type::fp16, "float16", 2},
    {Type::fp32, "float32", 4},         {Type::fp8_e4m3, "float8_e4m3fn", 1},
    {Type::fp8_e5m2, "float8_e5m2", 1}, {Type::int32, "int32", 4},
    {Type::int64, "int64", 8},
};

const TypeInfo& info_of(Type type) {
  return kTypes[static_cast<std::size_t>(type)];
}

// Products of sizes up to here stay far from 2^64.
constexpr int64_t kMost = int64_t{1} << 31;

void check_range(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value < low || value >= high)
    fail(ErrorKind::argument, "ExpertParallel: ", name, "=", value, ": expected from ", low, " to ",
         high - 1);
}

// The rows that all PEs together can send to one, or INT64_MAX where that is more.
int64_t most_received(const Config& config, int n_pes) {
  const int64_t tokens = config.max_tokens * n_pes;
  if (!config.by_expert()) return tokens;
  const int64_t experts = config.most_experts(n_pes);
  int64_t rows = 0, filling = 0;
  const bool fits = !__builtin_mul_overflow(tokens, std::min(config.topk, experts), &rows) &&
                    !__builtin_mul_overflow(experts, config.alignment - 1, &filling) &&
                    !__builtin_add_overflow(rows, filling, &rows);
  return fits ? rows : INT64_MAX;
}

void check_row(const char* name, Type type, uint64_t bytes) {
  if (bytes % 16 != 0)
    fail(ErrorKind::argument, "ExpertParallel: a row of ", name, "=", name_of(type), " has ", bytes,
         " bytes: expected a multiple of 16; choose another hidden");
}

}  // namespace

const char* name_of(Type type) {
  return info_of(type).name;
}
uint64_t bytes_of(Type type) {
  return info_of(type).bytes;
}

const char* name_of(Layout layout) {
  switch (layout) {
    case Layout::contiguous:
      return "contiguous";
    case Layout::expert_major:
      return "expert-major";
    case Layout::slots:
      break;
  }
  return "slots";
}

Layout layout_from(const std::string& name) {
  for (const Layout layout : {Layout::contiguous, Layout::expert_major, Layout::slots})
    if (name == name_of(layout)) return layout;
  fail(ErrorKind::argument, "layout ", name, " is not one of contiguous, expert-major, slots");
}

Type type_from(const std::string& name) {
  std::string known;
  for (const TypeInfo& row : kTypes) {
    if (name == row.name) return row.type;
    known += text(known.empty() ? "" : ", ", row.name);
  }
  fail(ErrorKind::argument, "dtype ", name, " is not one of ", known);
}

int64_t Config::received(int n_pes) const {
  return max_received ? *max_received : most_received(*this, n_pes);
}

int64_t Config::arrivals(int n_pes) const {
  return std::min(max_tokens * n_pes, received(n_pes));
}

void Config::check(int n_pes) const {
  check_range("hidden", hidden, 1, kMost);
  check_range("experts", experts, 1, kMost);
  check_range("topk", topk, 1, experts + 1);
  check_range("max_tokens", max_tokens, 1, kMost);
  check_range("alignment", alignment, 1, kMost);
  if (!by_expert() && alignment != 1)
    fail(ErrorKind::argument, "ExpertParallel: alignment=", alignment,
         " is for layout=expert-major; layout=", name_of(layout), " has no blocks");
  if (by_slot() && max_received && *max_received != max_tokens * n_pes)
    fail(ErrorKind::argument, "ExpertParallel: max_received=", *max_received,
         ": layout=slots has a place for every token, ", max_tokens * n_pes);
  check_range("max_received", received(n_pes), 1,
              std::min(most_received(*this, n_pes), INT64_MAX - 1) + 1);
  check_range("handles", handles, 1, 1025);
  check_range("blocks", blocks, 1, 1025);
  if (dtype == Type::int32 || dtype == Type::int64)
    fail(ErrorKind::argument, "ExpertParallel: dtype=", name_of(dtype), " is not a type of tokens");
  if (combined() != Type::bf16 && combined() != Type::fp16 && combined() != Type::fp32)
    fail(ErrorKind::argument, "ExpertParallel: combine_dtype=", name_of(combined()),
         ": expected bfloat16, float16 or float32");
  if (is_fp8(dtype) && hidden % static_cast<int64_t>(kScaleBlock) != 0)
    fail(ErrorKind::argument, "ExpertParallel: hidden=", hidden, " with dtype=", name_of(dtype),
         ": expected a multiple of ", kScaleBlock, ", the elements that share a scale");
  if (quantise_from &&
      (dtype != Type::fp8_e4m3 || (*quantise_from != Type::bf16 && *quantise_from != Type::fp16)))
    fail(ErrorKind::argument, "ExpertParallel: quantise_from=", name_of(*quantise_from),
         " with dtype=", name_of(dtype), ": only bfloat16 and float16 are made float8_e4m3fn");
  check_row("dtype", dtype, token_bytes());
  check_row("combine_dtype", combined(), result_bytes());
}

std::string Config::describe(int n_pes) const {
  return text("hidden ", hidden, ", experts ", experts, ", topk ", topk, ", max_tokens ",
              max_tokens, ", max_received ", received(n_pes), ", dtype ", name_of(dtype),
              quantise_from ? text(" of ", name_of(*quantise_from)) : "", ", combine_dtype ",
              name_of(combined()), ", layout ", name_of(layout), ", alignment ", alignment,
              ", handles ", handles, fixed_shapes ? ", fixed_shapes" : "");
}

}  // namespace railshmem::ep
