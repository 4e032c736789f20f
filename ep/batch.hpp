// The arrays that one PE dispatches, and the checks that come before anything is sent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ep/config.hpp"

namespace railshmem::ep {

// A contiguous two-dimensional array.
struct Matrix {
  const void* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  Type type = Type::fp32;

  // Where a call writes that was given this array for its results.
  template <class T>
  T* target() const {
    return static_cast<T*>(const_cast<void*>(data));
  }
  uint64_t bytes() const {
    return static_cast<uint64_t>(rows) * static_cast<uint64_t>(columns) * bytes_of(type);
  }
};

struct Batch {
  Matrix tokens;   // [T, hidden] of dtype, or of quantise_from
  Matrix indices;  // [T, topk] int32 or int64, ids of the job's experts; -1: not routed
  Matrix weights;  // [T, topk] fp32
  std::optional<Matrix> scales;  // [T, hidden / 128] fp32, exactly where tokens are fp8
};

// The caller's arrays for what dispatch delivers, each with room for the rows that come; what is
// not given stays in the symmetric heap.
struct Outputs {
  std::optional<Matrix> tokens, weights, indices, scales;
};

// Throws Error(argument) naming argument, shape and type where they are not [rows, columns] of
// `type`.
void check_matrix(const std::string& who, const char* name, const Matrix& matrix, int64_t rows,
                  int64_t columns, Type type);

// Checks the whole batch, but the values of its expert ids.
void check_batch(const std::string& who, const Config& config, const Batch& batch);
// Checks those, on the host.
void check_ids(const std::string& who, const Config& config, const Matrix& indices);

// Checks what travels by a known routing of `rows` tokens.
void check_known(const std::string& who, const Config& config, const Matrix& tokens,
                 const std::optional<Matrix>& scales, int64_t rows);

// Checks everything but the number of rows, and returns how many fit, at most `room`.
int64_t check_outputs(const std::string& who, const Config& config, const Outputs& out,
                      int64_t room);

}  // namespace railshmem::ep
