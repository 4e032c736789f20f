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

// Elements of a row that share one scale.
constexpr uint64_t kScaleBlock = 128;

struct Config {
  int64_t hidden = 0;      // elements of a token
  int64_t experts = 0;     // of the job; PE p of n owns [p * experts / n, (p + 1) * experts / n)
  int64_t topk = 0;        // experts of a token, 1 to `experts`
  int64_t max_tokens = 0;  // that one PE dispatches at once
  Type dtype = Type::bf16;
  std::optional<Type> combine_dtype;    // default: dtype, or bf16 where that is fp8
  std::optional<int64_t> max_received;  // rows; default: what all PEs together can send
  int64_t blocks = 1;  // of the kernels; each has a host thread. May differ between PEs.

  Type combined() const { return combine_dtype.value_or(is_fp8(dtype) ? Type::bf16 : dtype); }
  int64_t received(int n_pes) const { return max_received.value_or(max_tokens * n_pes); }
  int64_t scales() const { return is_fp8(dtype) ? hidden / static_cast<int64_t>(kScaleBlock) : 0; }
  uint64_t token_bytes() const { return static_cast<uint64_t>(hidden) * bytes_of(dtype); }
  uint64_t result_bytes() const { return static_cast<uint64_t>(hidden) * bytes_of(combined()); }

  // Throws Error(argument) naming the values.
  void check(int n_pes) const;
  // For the comparison between PEs.
  std::string describe(int n_pes) const;
};

}  // namespace railshmem::ep
