// Copies by the threads of a GPU, whichever it is: written with the words of the file that includes
// this one at its end (rank, load_once, store_release, ...).
#pragma once

namespace railshmem::arch {

namespace detail {

template <bool kReleases, class W>
RSH_DEVICE bool store_word(void* to, const void* from) {
  if ((reinterpret_cast<uintptr_t>(to) & (sizeof(W) - 1)) != 0) return false;
  W word;
  if ((reinterpret_cast<uintptr_t>(from) & (sizeof(W) - 1)) == 0)
    word = *static_cast<const W*>(from);
  else
    memcpy(&word, from, sizeof word);
  if constexpr (kReleases)
    store_release(static_cast<W*>(to), word);
  else
    store_relaxed(static_cast<W*>(to), word);
  return true;
}

template <bool kReleases>
RSH_DEVICE bool store_whole(void* to, const void* from, uint64_t bytes) {
  switch (bytes) {
    case 8:
      return store_word<kReleases, uint64_t>(to, from);
    case 4:
      return store_word<kReleases, uint32_t>(to, from);
    case 2:
      return store_word<kReleases, uint16_t>(to, from);
    case 1:
      return store_word<kReleases, uint8_t>(to, from);
    default:
      return false;
  }
}

}  // namespace detail

// Aligned words of 1, 2, 4 and 8 bytes are stored whole: a peer that polls one never sees half of
// it. Release, so that a word put after data announces the data. Every thread of a scope may call
// it: all store the same.
RSH_DEVICE bool store_whole(void* to, const void* from, uint64_t bytes) {
  return detail::store_whole<true>(to, from, bytes);
}
// The same without order: a fence of system scope costs more than the store. What announces data is
// a signal, or a word behind a fence.
RSH_DEVICE bool store_whole_relaxed(void* to, const void* from, uint64_t bytes) {
  return detail::store_whole<false>(to, from, bytes);
}

// With those of 16 bytes: what copies are made of.
RSH_DEVICE void store_once(uint64_t* at, uint64_t v) {
  *at = v;
}
RSH_DEVICE uint64_t load_once(const uint64_t* at) {
  return *at;
}
RSH_DEVICE void store_once(uint32_t* at, uint32_t v) {
  *at = v;
}
RSH_DEVICE uint32_t load_once(const uint32_t* at) {
  return *at;
}

namespace detail {

// Words of `W`; both addresses have the same place within one. Thread `me` of `all`.
template <class W>
RSH_DEVICE void copy_words(char* to, const char* from, uint64_t bytes, uint64_t me, uint64_t all) {
  // So many loads in flight per thread hide the latency of memory.
  constexpr int kBatch = sizeof(W) == 16 ? 8 : 4;
  uint64_t head = -reinterpret_cast<uintptr_t>(to) & (sizeof(W) - 1);
  if (head > bytes) head = bytes;
  for (uint64_t i = me; i < head; i += all) to[i] = from[i];
  auto* target = reinterpret_cast<W*>(to + head);
  const auto* source = reinterpret_cast<const W*>(from + head);
  const uint64_t words = (bytes - head) / sizeof(W);
  uint64_t i = me;
  for (; i + (kBatch - 1) * all < words; i += kBatch * all) {
    W v[kBatch];
    RSH_UNROLL
    for (int k = 0; k < kBatch; ++k) v[k] = load_once(source + i + k * all);
    RSH_UNROLL
    for (int k = 0; k < kBatch; ++k) store_once(target + i + k * all, v[k]);
  }
  if (i < words) {  // what is left is less than a batch, and still many loads at once
    W v[kBatch];
    RSH_UNROLL
    for (int k = 0; k < kBatch - 1; ++k)
      if (i + k * all < words) v[k] = load_once(source + i + k * all);
    RSH_UNROLL
    for (int k = 0; k < kBatch - 1; ++k)
      if (i + k * all < words) store_once(target + i + k * all, v[k]);
  }
  for (uint64_t b = head + words * sizeof(W) + me; b < bytes; b += all) to[b] = from[b];
}

}  // namespace detail

// The scope's threads copy together; nobody may rely on the result before sync<S>(). Not from or to
// the shared memory of a block.
template <Scope S>
RSH_DEVICE void copy(void* to, const void* from, uint64_t bytes) {
  auto* target = static_cast<char*>(to);
  const auto* source = static_cast<const char*>(from);
  const uint64_t me = rank<S>(), all = size<S>();
  // Words as large as both addresses allow.
  const auto skew = reinterpret_cast<uintptr_t>(target) ^ reinterpret_cast<uintptr_t>(source);
  if ((skew & 15) == 0)
    detail::copy_words<Vec16>(target, source, bytes, me, all);
  else if ((skew & 7) == 0)
    detail::copy_words<uint64_t>(target, source, bytes, me, all);
  else if ((skew & 3) == 0)
    detail::copy_words<uint32_t>(target, source, bytes, me, all);
  else
    for (uint64_t i = me; i < bytes; i += all) target[i] = source[i];
}

}  // namespace railshmem::arch
