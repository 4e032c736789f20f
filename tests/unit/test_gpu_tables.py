"""What the library declares of the GPUs' drivers is what the vendors' headers say.

NVIDIA's come with the package nvidia-cuda-runtime. AMD's are no package: they are compared where
$ROCM_PATH (or /opt/rocm) has them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Vendor(NamedTuple):
    name: str  # of shmem/gpu/NAME_table.*
    header: str
    folders: list[Path]  # that may have it
    # Our name of a type -> theirs, and our members -> theirs.
    types: dict[str, str]
    members: dict[str, dict[str, str]]
    constants: dict[str, str]


LOCATION = {"type": "type", "id": "id"}
PROPERTIES = {
    "type": "type",
    "handle_types": "requestedHandleTypes",
    "location": "location",
    "win32_meta_data": "win32HandleMetaData",
    "compression": "allocFlags.compressionType",
    "gpu_direct_rdma": "allocFlags.gpuDirectRDMACapable",
    "usage": "allocFlags.usage",
}
ACCESS = {"location": "location", "flags": "flags"}

CUDA = Vendor(
    "cuda",
    "cuda.h",
    sorted(Path(sysconfig.get_path("platlib"), "nvidia").glob("cu*/include")),
    {
        "Location": "CUmemLocation",
        "AllocationProperties": "CUmemAllocationProp",
        "AccessDescription": "CUmemAccessDesc",
    },
    {
        "Location": LOCATION,
        "AllocationProperties": {**PROPERTIES, "reserved": "allocFlags.reserved"},
        "AccessDescription": ACCESS,
    },
    {
        "kOnDevice": "CU_MEM_LOCATION_TYPE_DEVICE",
        "kPinned": "CU_MEM_ALLOCATION_TYPE_PINNED",
        "kHandleNone": "CU_MEM_HANDLE_TYPE_NONE",
        "kHandleDescriptor": "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR",
        "kHandleFabric": "CU_MEM_HANDLE_TYPE_FABRIC",
        "kGranularityRecommended": "CU_MEM_ALLOC_GRANULARITY_RECOMMENDED",
        "kReadWrite": "CU_MEM_ACCESS_FLAGS_PROT_READWRITE",
        "kProcessors": "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT",
        "kCapabilityMajor": "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR",
        "kCapabilityMinor": "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR",
        "kHostPointerUsable": "CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM",
        "kCooperative": "CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH",
        "kVmm": "CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED",
        "kDescriptorHandles": ("CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED"),
        "kRdmaWithVmm": "CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED",
        "kDmaBuf": "CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED",
        "kRangeDmaBuf": "CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD",
        "kFabricHandles": "CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED",
        "kStreamNonBlocking": "CU_STREAM_NON_BLOCKING",
        "kEventNoTiming": "CU_EVENT_DISABLE_TIMING",
        "kHostRegisterPortableMapped": "CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP",
        "kPointerMemoryType": "CU_POINTER_ATTRIBUTE_MEMORY_TYPE",
        "kPointerOrdinal": "CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL",
        "kMemoryOfDevice": "CU_MEMORYTYPE_DEVICE",
        "kSharedBytes": "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES",
        "kNotReady": "CUDA_ERROR_NOT_READY",
    },
)
HIP = Vendor(
    "hip",
    "hip/hip_runtime_api.h",
    [Path(os.environ.get("ROCM_PATH", "/opt/rocm"), "include")],
    {
        "Location": "hipMemLocation",
        "AllocationProperties": "hipMemAllocationProp",
        "AccessDescription": "hipMemAccessDesc",
        "Properties": "hipDeviceProp_tR0600",
    },
    {
        "Location": LOCATION,
        "AllocationProperties": PROPERTIES,
        "AccessDescription": ACCESS,
        "Properties": {"name": "name", "architecture": "gcnArchName"},
    },
    {
        "kOnDevice": "hipMemLocationTypeDevice",
        "kUncached": "hipMemAllocationTypeUncached",
        "kHandleNone": "hipMemHandleTypeNone",
        "kHandleDescriptor": "hipMemHandleTypePosixFileDescriptor",
        "kHandleFabric": "hipMemHandleTypeFabric",
        "kGranularityRecommended": "hipMemAllocationGranularityRecommended",
        "kReadWrite": "hipMemAccessFlagsProtReadWrite",
        "kHostPointerUsable": "hipDeviceAttributeCanUseHostPointerForRegisteredMem",
        "kCooperative": "hipDeviceAttributeCooperativeLaunch",
        "kProcessors": "hipDeviceAttributeMultiprocessorCount",
        "kSharedBytesPerBlock": "hipDeviceAttributeMaxSharedMemoryPerBlock",
        "kVmm": "hipDeviceAttributeVirtualMemoryManagementSupported",
        "kRdmaWithVmm": "hipDeviceAttributeGPUDirectRDMAWithHipVMMSupported",
        "kFabricHandles": "hipDeviceAttributeHandleTypeFabricSupported",
        "kStreamNonBlocking": "hipStreamNonBlocking",
        "kEventNoTiming": "hipEventDisableTiming",
        "kHostRegisterPortableMapped": "hipHostRegisterPortable | hipHostRegisterMapped",
        "kPointerMemoryType": "HIP_POINTER_ATTRIBUTE_MEMORY_TYPE",
        "kPointerOrdinal": "HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL",
        "kMemoryOfDevice": "hipMemoryTypeDevice",
        "kCopyDefault": "hipMemcpyDefault",
        "kNotReady": "hipErrorNotReady",
    },
)

# The header has a template of the same name.
OVERLOADED = {"hipMalloc": "static_cast<hipError_t (*)(void**, size_t)>(&hipMalloc)"}

# Alike: passed to functions and laid out in the same way. Where our type is void, theirs is opaque.
ALIKE = """
template <class Ours, class Theirs>
constexpr bool alike() {
  if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) {
    using O = std::remove_cv_t<std::remove_pointer_t<Ours>>;
    using T = std::remove_cv_t<std::remove_pointer_t<Theirs>>;
    if constexpr (std::is_void_v<O> || std::is_void_v<T>) return true;
    else return alike<O, T>();
  } else if constexpr (std::is_class_v<Ours> && std::is_class_v<Theirs>) {
    return sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs);
  } else {
    constexpr bool numbers = (std::is_integral_v<Ours> || std::is_enum_v<Ours>) &&
                             (std::is_integral_v<Theirs> || std::is_enum_v<Theirs>);
    if constexpr (numbers) return sizeof(Ours) == sizeof(Theirs);
    else return std::is_same_v<Ours, Theirs>;
  }
}
template <class Ours, class Theirs>
struct SameCall : std::false_type {};
template <class R, class... A, class S, class... B>
struct SameCall<R (*)(A...), S (*)(B...)> {
  template <bool SameCount>
  static constexpr bool check() {
    if constexpr (SameCount) return alike<R, S>() && (alike<A, B>() && ...);
    else return false;
  }
  static constexpr bool value = check<sizeof...(A) == sizeof...(B)>();
};
"""


def include_of(vendor: Vendor) -> Path | None:
    return next((folder for folder in vendor.folders if (folder / vendor.header).is_file()), None)


def constants_of(text: str) -> set[str]:
    return set(re.findall(r"^constexpr \w+ (k\w+) =", text, re.MULTILINE))


def program(vendor: Vendor) -> str:
    """What compiles only where both say the same."""
    header = (ROOT / f"shmem/gpu/{vendor.name}_table.hpp").read_text()
    source = (ROOT / f"shmem/gpu/{vendor.name}_table.cpp").read_text()
    calls = re.findall(r'library\.find(?:_newer)?\("(\w+)", (\w+)\);', source)
    assert {member for _, member in calls} == set(re.findall(r"\(\*(\w+)\)\(", header))
    assert constants_of(header) == set(vendor.constants)
    assert set(vendor.types) == set(re.findall(r"^struct (\w+) \{", header, re.MULTILINE)) - {
        "Table"
    }
    lines = [
        "#define __HIP_PLATFORM_AMD__ 1" if vendor is HIP else "",
        f"#include <{vendor.header}>",
        "#include <cstddef>",
        "#include <type_traits>",
        f'#include "shmem/gpu/{vendor.name}_table.hpp"',
        ALIKE,
        f"namespace ours = railshmem::gpu::{vendor.name};",
    ]
    for ours, theirs in vendor.types.items():
        lines.append(f"static_assert(sizeof(ours::{ours}) == sizeof({theirs}));")
        for member, their_member in vendor.members[ours].items():
            lines.append(
                f"static_assert(offsetof(ours::{ours}, {member}) == "
                f"offsetof({theirs}, {their_member}));"
            )
    for ours, theirs in vendor.constants.items():
        lines.append(f"static_assert(static_cast<long>(ours::{ours}) == ({theirs}));")
    for symbol, member in calls:
        theirs = OVERLOADED.get(symbol, f"&{symbol}")
        lines.append(
            f"static_assert(SameCall<decltype(ours::Table::{member}), decltype({theirs})>::value,"
            f' "{symbol}");'
        )
    return "\n".join(lines) + "\n"


def compiles(vendor: Vendor, text: str, folder: Path) -> str:
    """What the compiler says."""
    include = include_of(vendor)
    file = folder / "table.cpp"
    file.write_text(text)
    compiler = os.environ.get("CXX") or shutil.which("c++") or "g++"
    done = subprocess.run(
        [compiler, "-std=c++17", "-fsyntax-only", f"-I{ROOT}", f"-isystem{include}", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr if done.returncode else ""


AT_HAND = [vendor for vendor in (CUDA, HIP) if vendor is CUDA or include_of(vendor)]


@pytest.mark.parametrize("vendor", AT_HAND, ids=lambda vendor: vendor.name)
def test_the_table_is_the_header_s(vendor: Vendor, tmp_path: Path) -> None:
    if include_of(vendor) is None:
        pytest.skip(f"no {vendor.header}")
    assert compiles(vendor, program(vendor), tmp_path) == ""


def test_a_difference_is_found(tmp_path: Path) -> None:
    if include_of(CUDA) is None:
        pytest.skip(f"no {CUDA.header}")
    right = program(CUDA)
    for wrong in (
        right.replace("decltype(&cuMemUnmap)", "decltype(&cuMemRelease)"),
        right.replace("(CU_MEM_HANDLE_TYPE_FABRIC)", "(CU_MEM_HANDLE_TYPE_WIN32)"),
        right.replace("offsetof(CUmemAccessDesc, flags)", "offsetof(CUmemAccessDesc, location)"),
    ):
        assert "static assertion failed" in compiles(CUDA, wrong, tmp_path)


@pytest.mark.parametrize("vendor", [CUDA, HIP], ids=lambda vendor: vendor.name)
def test_the_table_s_parts_are_all_compared(vendor: Vendor) -> None:
    assert program(vendor)
