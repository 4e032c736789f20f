"""Symmetric arrays in GPU memory: like numpy's, but for who touches the elements."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from mpi4py import MPI

import railshmem
from jobs import job, settings_of
from railshmem import DeviceArray, symmetric_array
from spec_arrays import RMA_TYPES, sample


def test_they_keep_what_is_written(comm: MPI.Intracomm) -> None:
    with job(comm, settings_of("one node", comm.size)) as rt:
        for dtype in (*RMA_TYPES, np.dtype([("key", "<i4"), ("value", "<f8")])):
            array = symmetric_array(rt, (3, 4), dtype)
            assert isinstance(array, DeviceArray)
            values = np.zeros(12, dtype) if array.dtype.names else sample(dtype, 12, rt.my_pe)
            array[...] = values.reshape(3, 4)
            assert (array.shape, array.dtype, array.size) == ((3, 4), np.dtype(dtype), 12)
            assert array.nbytes == 12 * array.itemsize
            np.testing.assert_array_equal(array, values.reshape(3, 4))
            assert array.tobytes() == bytes(array) == values.tobytes()
            rt.free(array)


READS: dict[str, Callable[[np.ndarray], object]] = {
    "an element": lambda a: a[1, 2, 3],
    "a negative one": lambda a: a[-1, -1, -1],
    "a row": lambda a: a[1],
    "slices": lambda a: a[:, 1:3, ::2],
    "backwards": lambda a: a[::-1, :, ::-2],
    "dots and a new axis": lambda a: a[..., None, 2],
    "transposed": lambda a: a.T,
    "a slice of a slice": lambda a: a[:, ::2][1:, 1][..., 1:],
    "nothing": lambda a: a[:, 2:2],
    "a list": lambda a: a[[1, 0]],
    "a mask": lambda a: a[a > 30],
    "reshaped": lambda a: a.reshape(6, -1),
    "as other elements": lambda a: a.view(np.uint8),
    "flat": lambda a: a.ravel(),
    "arithmetics": lambda a: (a + 1) * a - a[0],
    "of another type": lambda a: a.astype(np.float64) / 3,
    "a ufunc": lambda a: np.maximum(a, 17),
    "a sum": lambda a: a.sum(axis=1),
    "extremes": lambda a: (a.min(), a.max()),
    "truths": lambda a: ((a >= 0).all(), (a == 59).any(), a[0, 0, :1].any()),
    "numbers": lambda a: (int(a[0, 0, 1]), float(a[1, 1, 1]), list(a[0, 0])),
    "in a function of numpy": lambda a: np.concatenate([a[0], a[1]]),
    "its length": lambda a: (len(a), a.ndim, a.strides, a.itemsize),
    "an index": lambda a: list(range(100))[a[0, 0, 2]],
}


@pytest.mark.parametrize("name", READS)
def test_reading_gives_what_numpy_gives(comm: MPI.Intracomm, name: str) -> None:
    with job(comm, settings_of("one node", comm.size)) as rt:
        values = np.arange(60, dtype=np.int32).reshape(3, 4, 5)
        array = symmetric_array(rt, (3, 4, 5), np.int32)
        array[:] = values
        expected, found = READS[name](values), READS[name](array)
        np.testing.assert_equal(
            found.numpy() if isinstance(found, DeviceArray) else found, expected
        )
        if isinstance(expected, np.ndarray):
            assert found.shape == expected.shape
            assert found.dtype == expected.dtype


def written(a: np.ndarray) -> dict[str, Callable[[], object]]:
    def add(view: np.ndarray) -> None:
        view += 7

    def into(view: np.ndarray) -> None:
        np.multiply(view, 2, out=view)

    return {
        "all": lambda: a.__setitem__(slice(None), 3),
        "bytes of one value": lambda: a[1].fill(-1),
        "an element": lambda: a.__setitem__((1, 2, 3), 99),
        "a row": lambda: a.__setitem__(2, np.arange(20).reshape(4, 5)),
        "broadcast": lambda: a.__setitem__((..., slice(1, 3)), [[5, 6]]),
        "every second": lambda: a.__setitem__((slice(None), slice(None, None, 2), 1), 44),
        "backwards": lambda: a.__setitem__(slice(None, None, -1), a[:]),
        "a list": lambda: a.__setitem__([0, 2], 8),
        "a mask": lambda: a.__setitem__(a > 40, np.arange(19)),
        "pairs": lambda: a.__setitem__(([0, 1], [1, 2]), 12),
        "its own elements": lambda: a.__setitem__(0, a[1]),
        "added": lambda: add(a[1]),
        "into itself": lambda: into(a[:, 1]),
        "through another type": lambda: a.view(np.int8)[:, :, 0].fill(1),
    }


@pytest.mark.parametrize("name", written(np.zeros((3, 4, 5))))
def test_writing_changes_what_numpy_changes(comm: MPI.Intracomm, name: str) -> None:
    with job(comm, settings_of("one node", comm.size)) as rt:
        values = np.arange(60, dtype=np.int32).reshape(3, 4, 5)
        array = symmetric_array(rt, (3, 4, 5), np.int32)
        array[:] = values
        written(array)[name]()
        written(values)[name]()
        np.testing.assert_array_equal(array, values)


def test_what_does_not_fit_is_refused_as_numpy_refuses_it(comm: MPI.Intracomm) -> None:
    with job(comm, settings_of("one node", comm.size)) as rt:
        array = symmetric_array(rt, (2, 3), np.int16)
        array[:] = 5
        for error, wrong in (
            (ValueError, lambda: array.__setitem__(slice(None), [1, 2])),
            (OverflowError, lambda: array.fill(1 << 20)),
            (IndexError, lambda: array[2]),
            (ValueError, lambda: array.reshape(7)),
            (ValueError, lambda: array.T.reshape(6)),
            (ValueError, lambda: bool(array)),
            (ValueError, lambda: np.array(array, copy=False)),
            (TypeError, lambda: np.add.at(array, [0], 1)),
            (TypeError, lambda: hash(array)),
        ):
            with pytest.raises(error):
                wrong()
        assert (array == 5).all()


def test_views_keep_the_memory(comm: MPI.Intracomm) -> None:
    with job(comm, settings_of("one node", comm.size)) as rt:
        array = symmetric_array(rt, 16, np.int32)
        array[:] = 3
        view = array[4:8].reshape(2, 2)
    del rt, array
    assert view.tolist() == [[3, 3], [3, 3]]


def test_nothing_is_an_array_too(comm: MPI.Intracomm) -> None:
    with job(comm, settings_of("one node", comm.size)) as rt:
        nothing = symmetric_array(rt, (0, 3), np.float32)
        assert (nothing.ptr, nothing.nbytes, nothing.shape) == (0, 0, (0, 3))
        nothing[:] = 1
        assert nothing.numpy().shape == (0, 3)
        rt.free(nothing)
        assert rt.malloc(0).ptr == 0


def test_a_peers_memory_is_an_array(comm: MPI.Intracomm) -> None:
    with job(comm, settings_of("one node", comm.size)) as rt:
        array = symmetric_array(rt, (2, 2), np.int64)
        array[:] = rt.my_pe
        rt.barrier_all()
        right = (rt.my_pe + 1) % rt.n_pes
        theirs = rt.ptr(array, right)
        assert isinstance(theirs, DeviceArray)
        assert (theirs == right).all()
        rt.barrier_all()
        theirs[1, 1] = 77
        rt.barrier_all()
        assert array.tolist() == [[rt.my_pe] * 2, [rt.my_pe, 77]]


# ---- what other libraries see ----


def test_the_array_interface_names_the_memory(comm: MPI.Intracomm) -> None:
    with job(comm, settings_of("one node", comm.size)) as rt:
        array = symmetric_array(rt, (4, 6), np.float32)
        assert array.__cuda_array_interface__ == {
            "version": 3,
            "shape": (4, 6),
            "typestr": "<f4",
            "data": (array.ptr, False),
            "strides": None,
            "stream": None,
        }
        part = array[1:, ::2].__cuda_array_interface__
        assert (part["shape"], part["strides"]) == ((3, 3), (24, 8))
        assert part["data"] == (array.ptr + 24, False)
        assert array.device == rt.device_index
        fields = symmetric_array(rt, 2, [("key", "<i4"), ("value", "<f8")])
        assert fields.__cuda_array_interface__["descr"] == [("key", "<i4"), ("value", "<f8")]


class DlTensor(ctypes.Structure):
    """Of DLPack: what a consumer reads."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    )


class DlManaged(ctypes.Structure):
    pass


class DlVersioned(ctypes.Structure):
    pass


DlManaged._fields_ = [
    ("tensor", DlTensor),
    ("context", ctypes.c_void_p),
    ("deleter", ctypes.CFUNCTYPE(None, ctypes.POINTER(DlManaged))),
]
DlVersioned._fields_ = [
    ("version", ctypes.c_uint32 * 2),
    ("context", ctypes.c_void_p),
    ("deleter", ctypes.CFUNCTYPE(None, ctypes.POINTER(DlVersioned))),
    ("flags", ctypes.c_uint64),
    ("tensor", DlTensor),
]
POINTER_OF = ctypes.pythonapi.PyCapsule_GetPointer
POINTER_OF.restype, POINTER_OF.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
RENAME = ctypes.pythonapi.PyCapsule_SetName
RENAME.argtypes = (ctypes.py_object, ctypes.c_char_p)


@pytest.mark.parametrize("versioned", [False, True])
def test_dlpack_describes_the_memory_and_keeps_it(comm: MPI.Intracomm, versioned: bool) -> None:
    kind, name = (DlVersioned, b"dltensor_versioned") if versioned else (DlManaged, b"dltensor")
    with job(comm, settings_of("one node", comm.size)) as rt:
        for dtype, code, bits in (
            (np.int16, 0, 16),
            (np.uint64, 1, 64),
            (np.float16, 2, 16),
            (ml_dtypes.bfloat16, 4, 16),
            (np.complex128, 5, 128),
            (np.bool_, 6, 8),
            (ml_dtypes.float8_e4m3fn, 10, 8),
            (ml_dtypes.float8_e5m2, 12, 8),
        ):
            array = symmetric_array(rt, (4, 6), dtype)[1:, ::2]
            capsule = array.__dlpack__(max_version=(1, 0) if versioned else None)
            managed = kind.from_address(POINTER_OF(capsule, name))
            tensor = managed.tensor
            assert (tensor.data, tensor.offset) == (array.ptr, 0)
            assert (tensor.code, tensor.bits, tensor.lanes) == (code, bits, 1)
            assert list(tensor.shape[:2]) == [3, 3]
            assert list(tensor.strides[:2]) == [6, 2]
            assert tuple(tensor.device) == array.__dlpack_device__()
            RENAME(capsule, b"used_" + name)  # taken
            managed.deleter(ctypes.byref(managed))
        del capsule
        array.__dlpack__()  # taken by nobody
        assert array.__dlpack_device__() == (2, rt.device_index)


def test_dlpack_refuses_what_it_cannot_say(comm: MPI.Intracomm) -> None:
    with job(comm, settings_of("one node", comm.size)) as rt:
        array = symmetric_array(rt, 4, np.float32)
        with pytest.raises(BufferError, match=r"numpy\(\) gives a copy"):
            array.__dlpack__(dl_device=(1, 0))
        with pytest.raises(BufferError, match="no copies"):
            array.__dlpack__(copy=True)
        with pytest.raises(BufferError, match="no type for float128"):
            symmetric_array(rt, 4, np.longdouble).__dlpack__()
        with pytest.raises((BufferError, RuntimeError)):
            np.from_dlpack(array)


# ---- what the job says of its GPUs ----


def test_the_runtime_names_its_gpu(comm: MPI.Intracomm) -> None:
    with job(comm, settings_of("one node", comm.size)) as rt:
        assert rt.device in ("cuda", "hip")
        info = rt.info()
        assert info["device"] == rt.device
        mine = info["pes"][rt.my_pe]
        assert mine["gpu"]["index"] == rt.device_index
        assert mine["gpu"]["memory_bytes"] > 0
        assert mine["gpu"]["name"]
        assert mine["device_reason"] == rt.device_reason
        assert "PEs" in rt.device_reason or "RAILSHMEM_GPU" in rt.device_reason
        assert rt.device_context() != 0
    with pytest.raises(railshmem.ArgumentError, match="finalized"):
        rt.device_context()
