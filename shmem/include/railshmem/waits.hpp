// Point-to-point synchronisation (9.10): waiting for and testing words of this PE's heap. T is an
// integer of 4 or 8 bytes. Words whose `status` is not 0 are left out; null: none is. The forms
// that find one or some return SIZE_MAX or 0 where nothing takes part or, for test, compares.
#pragma once

#include <algorithm>
#include <cstddef>

#include "shmem/api/default_runtime.hpp"
#include "shmem/api/waits.hpp"
#include "shmem/include/railshmem/deduction.hpp"

namespace railshmem {

using device::Compare;

constexpr Compare SHMEM_CMP_EQ = Compare::equal;
constexpr Compare SHMEM_CMP_NE = Compare::not_equal;
constexpr Compare SHMEM_CMP_GT = Compare::greater;
constexpr Compare SHMEM_CMP_GE = Compare::greater_equal;
constexpr Compare SHMEM_CMP_LT = Compare::less;
constexpr Compare SHMEM_CMP_LE = Compare::less_equal;

// Returns the value that satisfied the comparison.
template <class T>
T shmem_wait_until(const T* ivar, Compare cmp, detail::Given<T> cmp_value) {
  return wait_until(default_runtime(), ivar, cmp, cmp_value);
}
template <class T>
void shmem_wait_until_all(const T* ivars, std::size_t nelems, const int* status, Compare cmp,
                          detail::Given<T> cmp_value) {
  wait_until_all(default_runtime(), Words<T>{ivars, nelems, status, &cmp_value, false}, cmp);
}
template <class T>
std::size_t shmem_wait_until_any(const T* ivars, std::size_t nelems, const int* status, Compare cmp,
                                 detail::Given<T> cmp_value) {
  return wait_until_any(default_runtime(), Words<T>{ivars, nelems, status, &cmp_value, false}, cmp);
}
template <class T>
std::size_t shmem_wait_until_some(const T* ivars, std::size_t nelems, std::size_t* indices,
                                  const int* status, Compare cmp, detail::Given<T> cmp_value) {
  const auto found =
      wait_until_some(default_runtime(), Words<T>{ivars, nelems, status, &cmp_value, false}, cmp);
  std::copy(found.begin(), found.end(), indices);
  return found.size();
}
template <class T>
void shmem_wait_until_all_vector(const T* ivars, std::size_t nelems, const int* status, Compare cmp,
                                 const T* cmp_values) {
  wait_until_all(default_runtime(), Words<T>{ivars, nelems, status, cmp_values, true}, cmp);
}
template <class T>
std::size_t shmem_wait_until_any_vector(const T* ivars, std::size_t nelems, const int* status,
                                        Compare cmp, const T* cmp_values) {
  return wait_until_any(default_runtime(), Words<T>{ivars, nelems, status, cmp_values, true}, cmp);
}
template <class T>
std::size_t shmem_wait_until_some_vector(const T* ivars, std::size_t nelems, std::size_t* indices,
                                         const int* status, Compare cmp, const T* cmp_values) {
  const auto found =
      wait_until_some(default_runtime(), Words<T>{ivars, nelems, status, cmp_values, true}, cmp);
  std::copy(found.begin(), found.end(), indices);
  return found.size();
}

// 1 when it compares, else 0.
template <class T>
int shmem_test(const T* ivar, Compare cmp, detail::Given<T> cmp_value) {
  return test(default_runtime(), ivar, cmp, cmp_value) ? 1 : 0;
}
template <class T>
int shmem_test_all(const T* ivars, std::size_t nelems, const int* status, Compare cmp,
                   detail::Given<T> cmp_value) {
  return test_all(default_runtime(), Words<T>{ivars, nelems, status, &cmp_value, false}, cmp) ? 1
                                                                                              : 0;
}
template <class T>
std::size_t shmem_test_any(const T* ivars, std::size_t nelems, const int* status, Compare cmp,
                           detail::Given<T> cmp_value) {
  return test_any(default_runtime(), Words<T>{ivars, nelems, status, &cmp_value, false}, cmp);
}
template <class T>
std::size_t shmem_test_some(const T* ivars, std::size_t nelems, std::size_t* indices,
                            const int* status, Compare cmp, detail::Given<T> cmp_value) {
  const auto found =
      test_some(default_runtime(), Words<T>{ivars, nelems, status, &cmp_value, false}, cmp);
  std::copy(found.begin(), found.end(), indices);
  return found.size();
}
template <class T>
int shmem_test_all_vector(const T* ivars, std::size_t nelems, const int* status, Compare cmp,
                          const T* cmp_values) {
  return test_all(default_runtime(), Words<T>{ivars, nelems, status, cmp_values, true}, cmp) ? 1
                                                                                             : 0;
}
template <class T>
std::size_t shmem_test_any_vector(const T* ivars, std::size_t nelems, const int* status,
                                  Compare cmp, const T* cmp_values) {
  return test_any(default_runtime(), Words<T>{ivars, nelems, status, cmp_values, true}, cmp);
}
template <class T>
std::size_t shmem_test_some_vector(const T* ivars, std::size_t nelems, std::size_t* indices,
                                   const int* status, Compare cmp, const T* cmp_values) {
  const auto found =
      test_some(default_runtime(), Words<T>{ivars, nelems, status, cmp_values, true}, cmp);
  std::copy(found.begin(), found.end(), indices);
  return found.size();
}

}  // namespace railshmem
