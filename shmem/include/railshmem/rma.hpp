// Remote memory access (9.6), also non-blocking (9.6.2). `dest` of puts and `source` of gets are
// symmetric.
#pragma once

#include <cstddef>

#include "shmem/include/railshmem/contexts.hpp"
#include "shmem/include/railshmem/deduction.hpp"

namespace railshmem {

// ---- puts: return when `source` may change ----

template <class C, class T, class = detail::IfContext<C>>
void shmem_put(const C& ctx, T* dest, const T* source, std::size_t nelems, int pe) {
  detail::context_of(ctx).put(dest, source, nelems * sizeof(T), pe);
}
template <class T>
void shmem_put(T* dest, const T* source, std::size_t nelems, int pe) {
  shmem_put(SHMEM_CTX_DEFAULT, dest, source, nelems, pe);
}
template <class C, class = detail::IfContext<C>>
void shmem_ctx_putmem(const C& ctx, void* dest, const void* source, std::size_t bytes, int pe) {
  detail::context_of(ctx).put(dest, source, bytes, pe);
}
inline void shmem_putmem(void* dest, const void* source, std::size_t bytes, int pe) {
  shmem_ctx_putmem(SHMEM_CTX_DEFAULT, dest, source, bytes, pe);
}
template <class C, class T, class = detail::IfContext<C>>
void shmem_p(const C& ctx, T* dest, detail::Given<T> value, int pe) {
  detail::context_of(ctx).put(dest, &value, sizeof value, pe);
}
template <class T>
void shmem_p(T* dest, detail::Given<T> value, int pe) {
  shmem_p(SHMEM_CTX_DEFAULT, dest, value, pe);
}
// Elements `dst` and `sst` elements apart.
template <class C, class T, class = detail::IfContext<C>>
void shmem_iput(const C& ctx, T* dest, const T* source, std::ptrdiff_t dst, std::ptrdiff_t sst,
                std::size_t nelems, int pe) {
  detail::context_of(ctx).iput(dest, source, dst, sst, nelems, sizeof(T), pe);
}
template <class T>
void shmem_iput(T* dest, const T* source, std::ptrdiff_t dst, std::ptrdiff_t sst,
                std::size_t nelems, int pe) {
  shmem_iput(SHMEM_CTX_DEFAULT, dest, source, dst, sst, nelems, pe);
}

// ---- gets: return when the data is here ----

template <class C, class T, class = detail::IfContext<C>>
void shmem_get(const C& ctx, T* dest, const T* source, std::size_t nelems, int pe) {
  detail::context_of(ctx).get(dest, source, nelems * sizeof(T), pe);
}
template <class T>
void shmem_get(T* dest, const T* source, std::size_t nelems, int pe) {
  shmem_get(SHMEM_CTX_DEFAULT, dest, source, nelems, pe);
}
template <class C, class = detail::IfContext<C>>
void shmem_ctx_getmem(const C& ctx, void* dest, const void* source, std::size_t bytes, int pe) {
  detail::context_of(ctx).get(dest, source, bytes, pe);
}
inline void shmem_getmem(void* dest, const void* source, std::size_t bytes, int pe) {
  shmem_ctx_getmem(SHMEM_CTX_DEFAULT, dest, source, bytes, pe);
}
template <class C, class T, class = detail::IfContext<C>>
T shmem_g(const C& ctx, const T* source, int pe) {
  T value;
  detail::context_of(ctx).get(&value, source, sizeof value, pe);
  return value;
}
template <class T>
T shmem_g(const T* source, int pe) {
  return shmem_g(SHMEM_CTX_DEFAULT, source, pe);
}
template <class C, class T, class = detail::IfContext<C>>
void shmem_iget(const C& ctx, T* dest, const T* source, std::ptrdiff_t dst, std::ptrdiff_t sst,
                std::size_t nelems, int pe) {
  detail::context_of(ctx).iget(dest, source, dst, sst, nelems, sizeof(T), pe);
}
template <class T>
void shmem_iget(T* dest, const T* source, std::ptrdiff_t dst, std::ptrdiff_t sst,
                std::size_t nelems, int pe) {
  shmem_iget(SHMEM_CTX_DEFAULT, dest, source, dst, sst, nelems, pe);
}

// ---- non-blocking: complete at shmem_quiet ----

template <class C, class T, class = detail::IfContext<C>>
void shmem_put_nbi(const C& ctx, T* dest, const T* source, std::size_t nelems, int pe) {
  detail::context_of(ctx).put_nbi(dest, source, nelems * sizeof(T), pe);
}
template <class T>
void shmem_put_nbi(T* dest, const T* source, std::size_t nelems, int pe) {
  shmem_put_nbi(SHMEM_CTX_DEFAULT, dest, source, nelems, pe);
}
template <class C, class = detail::IfContext<C>>
void shmem_ctx_putmem_nbi(const C& ctx, void* dest, const void* source, std::size_t bytes, int pe) {
  detail::context_of(ctx).put_nbi(dest, source, bytes, pe);
}
inline void shmem_putmem_nbi(void* dest, const void* source, std::size_t bytes, int pe) {
  shmem_ctx_putmem_nbi(SHMEM_CTX_DEFAULT, dest, source, bytes, pe);
}
template <class C, class T, class = detail::IfContext<C>>
void shmem_get_nbi(const C& ctx, T* dest, const T* source, std::size_t nelems, int pe) {
  detail::context_of(ctx).get_nbi(dest, source, nelems * sizeof(T), pe);
}
template <class T>
void shmem_get_nbi(T* dest, const T* source, std::size_t nelems, int pe) {
  shmem_get_nbi(SHMEM_CTX_DEFAULT, dest, source, nelems, pe);
}
template <class C, class = detail::IfContext<C>>
void shmem_ctx_getmem_nbi(const C& ctx, void* dest, const void* source, std::size_t bytes, int pe) {
  detail::context_of(ctx).get_nbi(dest, source, bytes, pe);
}
inline void shmem_getmem_nbi(void* dest, const void* source, std::size_t bytes, int pe) {
  shmem_ctx_getmem_nbi(SHMEM_CTX_DEFAULT, dest, source, bytes, pe);
}

}  // namespace railshmem
