#include "ep/batch.hpp"

#include "shmem/base/error.hpp"

namespace railshmem::ep {
namespace {

template <class Integer>
void copy_ids(const std::string& who, const Config& config, const Matrix& indices, int32_t* ids) {
  const auto* const from = static_cast<const Integer*>(indices.data);
  for (int64_t i = 0; i < indices.rows * config.topk; ++i) {
    const auto id = static_cast<int64_t>(from[i]);
    if (id < -1 || id >= config.experts)
      fail(ErrorKind::argument, who, "token ", i / config.topk, ", column ", i % config.topk,
           ": expert ", id, " does not exist; ids go from 0 to ", config.experts - 1,
           ", and -1 means not routed");
    ids[i] = static_cast<int32_t>(id);
  }
}

void check_scales(const std::string& who, const Config& config, const Batch& batch) {
  if (batch.scales && !is_fp8(config.dtype))
    fail(ErrorKind::argument, who, "scales are given, but dtype=", name_of(config.dtype),
         " has none");
  if (!batch.scales && is_fp8(config.dtype))
    fail(ErrorKind::argument, who, "dtype=", name_of(config.dtype), " needs scales of shape [",
         batch.tokens.rows, ", ", config.scales(), "]");
  if (batch.scales)
    check_matrix(who, "scales", *batch.scales, batch.tokens.rows, config.scales(), Type::fp32);
}

}  // namespace

void check_matrix(const std::string& who, const char* name, const Matrix& matrix, int64_t rows,
                  int64_t columns, Type type) {
  if (matrix.rows != rows || matrix.columns != columns || matrix.type != type)
    fail(ErrorKind::argument, who, name, " has shape [", matrix.rows, ", ", matrix.columns, "] of ",
         name_of(matrix.type), ": expected [", rows, ", ", columns, "] of ", name_of(type));
}

void check_batch(const std::string& who, const Config& config, const Batch& batch, int32_t* ids) {
  const int64_t rows = batch.tokens.rows;
  if (rows > config.max_tokens)
    fail(ErrorKind::argument, who, rows, " tokens are more than max_tokens=", config.max_tokens);
  check_matrix(who, "tokens", batch.tokens, rows, config.hidden, config.dtype);
  check_matrix(who, "weights", batch.weights, rows, config.topk, Type::fp32);
  const bool narrow = batch.indices.type == Type::int32;
  check_matrix(who, "indices", batch.indices, rows, config.topk,
               narrow ? Type::int32 : Type::int64);
  check_scales(who, config, batch);
  if (narrow)
    copy_ids<int32_t>(who, config, batch.indices, ids);
  else
    copy_ids<int64_t>(who, config, batch.indices, ids);
}

}  // namespace railshmem::ep
