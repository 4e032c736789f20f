// A stream of a GPU as an argument.
#pragma once

#include "python/bindings/bindings.hpp"
#include "shmem/gpu/driver.hpp"

namespace railshmem::python {

// Whatever stands for a stream in Python; None is the default stream. Throws Error(argument).
gpu::Stream stream_of(py::handle stream, const char* call);

}  // namespace railshmem::python
