// How the templates of this folder find their types.
#pragma once

namespace railshmem::detail {

template <class T>
struct Itself {
  using type = T;
};

// A parameter that takes the type of the pointers beside it, so that shmem_p(words, 1, pe) is a
// call whatever the words' type.
template <class T>
using Given = typename Itself<T>::type;

}  // namespace railshmem::detail
