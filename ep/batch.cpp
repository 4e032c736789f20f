#include "ep/batch.hpp"

#include <algorithm>

#include "shmem/base/error.hpp"

namespace railshmem::ep {
namespace {

template <class Integer>
void check_ids_of(const std::string& who, const Config& config, const Matrix& indices) {
  const auto* const from = static_cast<const Integer*>(indices.data);
  for (int64_t i = 0; i < indices.rows * config.topk; ++i) {
    const auto id = static_cast<int64_t>(from[i]);
    if (id < -1 || id >= config.experts)
      fail(ErrorKind::argument, who, "token ", i / config.topk, ", column ", i % config.topk,
           ": expert ", id, " does not exist; ids go from 0 to ", config.experts - 1,
           ", and -1 means not routed");
  }
}

void check_scales(const std::string& who, const Config& config, const std::optional<Matrix>& scales,
                  int64_t rows) {
  if (scales && !config.takes_scales())
    fail(ErrorKind::argument, who, "scales are given, but dtype=", name_of(config.dtype),
         config.quantise_from ? " makes them itself" : " has none");
  if (!scales && config.takes_scales())
    fail(ErrorKind::argument, who, "dtype=", name_of(config.dtype), " needs scales of shape [",
         rows, ", ", config.scales(), "]");
  if (scales) check_matrix(who, "scales", *scales, rows, config.scales(), Type::fp32);
}

}  // namespace

void check_matrix(const std::string& who, const char* name, const Matrix& matrix, int64_t rows,
                  int64_t columns, Type type) {
  if (matrix.rows != rows || matrix.columns != columns || matrix.type != type)
    fail(ErrorKind::argument, who, name, " has shape [", matrix.rows, ", ", matrix.columns, "] of ",
         name_of(matrix.type), ": expected [", rows, ", ", columns, "] of ", name_of(type));
}

void check_batch(const std::string& who, const Config& config, const Batch& batch) {
  const int64_t rows = batch.tokens.rows;
  if (rows > config.max_tokens)
    fail(ErrorKind::argument, who, rows, " tokens are more than max_tokens=", config.max_tokens);
  check_matrix(who, "tokens", batch.tokens, rows, config.hidden, config.given());
  check_matrix(who, "weights", batch.weights, rows, config.topk, Type::fp32);
  const bool narrow = batch.indices.type == Type::int32;
  check_matrix(who, "indices", batch.indices, rows, config.topk,
               narrow ? Type::int32 : Type::int64);
  check_scales(who, config, batch.scales, rows);
}

void check_ids(const std::string& who, const Config& config, const Matrix& indices) {
  if (indices.type == Type::int32)
    check_ids_of<int32_t>(who, config, indices);
  else
    check_ids_of<int64_t>(who, config, indices);
}

void check_known(const std::string& who, const Config& config, const Matrix& tokens,
                 const std::optional<Matrix>& scales, int64_t rows) {
  if (tokens.rows != rows)
    fail(ErrorKind::argument, who, tokens.rows, " tokens, but the handle is of ", rows);
  check_matrix(who, "tokens", tokens, rows, config.hidden, config.given());
  check_scales(who, config, scales, rows);
}

int64_t check_outputs(const std::string& who, const Config& config, const Outputs& out,
                      int64_t room) {
  const auto check = [&](const char* name, const std::optional<Matrix>& given, int64_t columns,
                         Type type) {
    if (!given) return;
    check_matrix(who, name, *given, given->rows, columns, type);
    room = std::min(room, given->rows);
  };
  check("out.tokens", out.tokens, config.hidden, config.dtype);
  check("out.weights", out.weights, config.routing_columns(), Type::fp32);
  check("out.indices", out.indices, config.routing_columns(), Type::int64);
  if (out.scales && !is_fp8(config.dtype))
    fail(ErrorKind::argument, who, "out.scales is given, but dtype=", name_of(config.dtype),
         " has none");
  check("out.scales", out.scales, config.scales(), Type::fp32);
  return room;
}

}  // namespace railshmem::ep
