// The fixed-width integers. Compilers that run beside the program have no C library: there the
// types are spelt out, exactly as libcu++ does, because a program may include both.
#pragma once

#if defined(__CUDACC_RTC__)
using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
using uintptr_t = unsigned long long;
#else
#include <stdint.h>
#include <string.h>
#endif
