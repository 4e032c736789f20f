// What an ExpertParallel is made for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace railshmem::ep {

// Element types of the arrays that dispatch and combine take.
enum class Type : uint8_t { bf16, fp16, fp32, fp8_e4m3, fp8_e5m2, int32, int64 };

// numpy's and ml_dtypes' names: "bfloat16", "float8_e4m3fn", ...
const char* name_of(Type type);
// Throws Error(argument) naming the known types.
Type type_from(const std::string& name);
uint64_t bytes_of(Type type);
inline bool is_fp8(Type type) {
  return type == Type::fp8_e4m3 || type == Type::fp8_e5m2;
}

// The order of what a PE receives: by (source PE, source token), or in one block per local expert,
// or with a place for every token that every PE may send, whether it comes or not.
enum class Layout : uint8_t { contiguous, expert_major, slots };

// "contiguous", "expert-major" and "slots".
const char* name_of(Layout layout);
// Throws Error(argument) naming the layouts.
Layout layout_from(const std::string& name);

// Elements of a row that share one scale.
constexpr uint64_t kScaleBlock = 128;

struct Config {
  int64_t hidden = 0;      // elements of a token
  int64_t experts = 0;     // of the job; PE p of n owns [p * experts / n, (p + 1) * experts / n)
  int64_t topk = 0;        // experts of a token, 1 to `experts`
  int64_t max_tokens = 0;  // that one PE dispatches at once
  Type dtype = Type::bf16;
  std::optional<Type> quantise_from;    // bf16 or fp16: of the caller's tokens, where dtype is e4m3
  std::optional<Type> combine_dtype;    // default: dtype, or bf16 where that is fp8
  std::optional<int64_t> max_received;  // rows; default: what all PEs together can send
  Layout layout = Layout::contiguous;
  int64_t alignment = 1;  // expert-major: every block has a multiple of so many rows
  int64_t handles = 1;    // dispatches whose rows and routing are kept at the same time
  int64_t blocks = 1;     // of the kernels; each has a host thread, or a processor of the GPU. May
                          // differ between PEs.
  // Received arrays always have max_received rows, and how many of them count stays where the
  // kernels are: the host waits for nothing.
  bool fixed_shapes = false;
  // On GPUs that have bulk copies: dispatch moves rows by them, through shared memory. May differ
  // between PEs.
  bool bulk = false;

  Type given() const { return quantise_from.value_or(dtype); }
  Type combined() const { return combine_dtype.value_or(is_fp8(dtype) ? Type::bf16 : dtype); }
  // Whether the caller has the scales.
  bool takes_scales() const { return is_fp8(dtype) && !quantise_from; }
  bool by_expert() const { return layout == Layout::expert_major; }
  bool by_slot() const { return layout == Layout::slots; }
  // The host learns no counts.
  bool fixed() const { return fixed_shapes || by_slot(); }
  // The most experts that one PE owns.
  int64_t most_experts(int n_pes) const { return (experts + n_pes - 1) / n_pes; }
  // Rows that one PE takes at most; expert-major: with what fills the blocks.
  int64_t received(int n_pes) const;
  // Tokens that one PE takes at most.
  int64_t arrivals(int n_pes) const;
  // Of the received weights and indices.
  int64_t routing_columns() const { return by_expert() ? 1 : topk; }
  int64_t scales() const { return is_fp8(dtype) ? hidden / static_cast<int64_t>(kScaleBlock) : 0; }
  uint64_t token_bytes() const { return static_cast<uint64_t>(hidden) * bytes_of(dtype); }
  uint64_t result_bytes() const { return static_cast<uint64_t>(hidden) * bytes_of(combined()); }

  // Throws Error(argument) naming the values.
  void check(int n_pes) const;
  // For the comparison between PEs.
  std::string describe(int n_pes) const;
};

}  // namespace railshmem::ep
