"""BLAS inside kernels: matrix products without the interpreter lock, on slices of arrays that stay in place.

``numpy.matmul`` needs the lock between two calls, and two threads that want it at the same time put each other to
sleep; with tiles of a tenth of a millisecond that costs more than the second thread brings. Numba's own ``np.dot``
copies slices. Addresses of routines are passed to kernels as integers, so that compiled code can be cached.
"""

from __future__ import annotations

import ctypes
import re
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from scipy.linalg import cython_blas
from threadpoolctl import threadpool_info

from terafactor.kernels.jit import jit

FLOAT64 = np.dtype(np.float64)

OURS = re.compile(r"[\\/](numpy|scipy)(\.libs)?[\\/]")
"""Where wheels of NumPy and SciPy keep their libraries."""


@cache
def address(routine: str, dtype: np.dtype[Any]) -> int:
    """Return the address of a BLAS routine, "gemm" or "syrk", for float32 or float64.

    NumPy and SciPy each bring an OpenBLAS of their own, and on thin matrices one release can be half as fast again as
    another: the newest one loaded is taken. SciPy's interface is what remains with any other BLAS.
    """
    name = ("s" if dtype == np.float32 else "d") + routine
    for library in _openblas_libraries():
        for pattern in ("scipy_{}_64_", "scipy_{}_", "{}_64_", "{}_"):
            function = getattr(library, pattern.format(name), None)
            if function is not None:
                return int(ctypes.cast(function, ctypes.c_void_p).value or 0)
    return _scipy_address(name)


def _openblas_libraries() -> list[ctypes.CDLL]:
    """Return the OpenBLAS libraries of this process, the newest first: those of NumPy and SciPy where these have some.

    Others come and go with what else is imported, and the bits of results would with them.
    """
    found = [library for library in threadpool_info() if library["internal_api"] == "openblas"]
    found = [library for library in found if OURS.search(library["filepath"])] or found
    found.sort(key=lambda library: [int(part) for part in re.findall(r"\d+", library["version"] or "0")], reverse=True)
    return [ctypes.CDLL(library["filepath"]) for library in found]


def _scipy_address(name: str) -> int:
    """Return the address of a routine in the BLAS that SciPy uses."""
    capsule = cython_blas.__pyx_capi__[name]
    label = ctypes.pythonapi.PyCapsule_GetName
    label.restype, label.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(pointer(capsule, label(capsule)))


def _call(builder, routine, arguments):
    """Emit a call in Fortran's way, every argument by reference.

    Integers are stored in 64 bits: on a little-endian machine a BLAS that reads 32 of them finds the same number.
    """
    pointers = [
        argument if isinstance(argument.type, ir.PointerType) else cgutils.alloca_once_value(builder, argument)
        for argument in arguments
    ]
    signature = ir.FunctionType(ir.VoidType(), [pointer.type for pointer in pointers])
    builder.call(builder.inttoptr(routine, signature.as_pointer()), pointers)


def _letter(builder, code):
    return builder.trunc(code, ir.IntType(8))


def _pointer(builder, address, scalar):
    return builder.inttoptr(address, scalar.type.as_pointer())


@intrinsic
def _gemm(typing, routine, trans_a, trans_b, m, n, k, a, lda, b, ldb, beta, c, ldc):
    """Column-major ``c = op(a) @ op(b) + beta * c``; trans_a, trans_b: codes of N and T; a, b, c: addresses."""

    def codegen(context, builder, signature, args):
        routine, trans_a, trans_b, m, n, k, a, lda, b, ldb, beta, c, ldc = args
        a, b, c = (_pointer(builder, address, beta) for address in (a, b, c))
        one = ir.Constant(beta.type, 1.0)
        letters = (_letter(builder, trans_a), _letter(builder, trans_b))
        _call(builder, routine, [*letters, m, n, k, one, a, lda, b, ldb, beta, c, ldc])
        return context.get_dummy_value()

    number = types.int64
    before, after = [number] * 10, [number] * 2
    return types.void(*before, beta, *after), codegen


@intrinsic
def _syrk(typing, routine, triangle, trans, n, k, a, lda, beta, c, ldc):
    """Column-major ``c = op(a) @ op(a)' + beta * c``, one triangle; codes of letters as in BLAS."""

    def codegen(context, builder, signature, args):
        routine, triangle, trans, n, k, a, lda, beta, c, ldc = args
        a, c = _pointer(builder, a, beta), _pointer(builder, c, beta)
        one = ir.Constant(beta.type, 1.0)
        _call(builder, routine, [_letter(builder, triangle), _letter(builder, trans), n, k, one, a, lda, beta, c, ldc])
        return context.get_dummy_value()

    number = types.int64
    return types.void(*[number] * 7, beta, number, number), codegen


N, T, LOWER = ord("N"), ord("T"), ord("L")


@jit
def leading(matrix):
    """Return how BLAS sees a matrix whose rows, or columns, are contiguous: N or T, and its leading dimension."""
    if matrix.strides[1] == matrix.itemsize:
        return N, max(matrix.strides[0] // matrix.itemsize, matrix.shape[1])
    return T, max(matrix.strides[1] // matrix.itemsize, matrix.shape[0])


@jit
def add_product(gemm, a, b, keep, c):
    """``c = keep * c + a @ b``. a, b: slices or transposes; c: contiguous rows. gemm: ``address("gemm", dtype)``.

    BLAS is column-major: what it sees are the transposes, and ``c.T = b.T @ a.T``. With keep 0, c may hold anything.
    """
    trans_a, lda = leading(a)
    trans_b, ldb = leading(b)
    ldc = max(c.strides[0] // c.itemsize, c.shape[1])
    _gemm(
        gemm, trans_b, trans_a, b.shape[1], a.shape[0], a.shape[1], b.ctypes.data, ldb, a.ctypes.data, lda,
        c.dtype.type(keep), c.ctypes.data, ldc,
    )  # fmt: skip


@jit
def add_upper_square(syrk, a, keep, c):
    """``c = keep * c + a.T @ a``, its upper triangle only. a: slice or transpose; c: contiguous rows."""
    trans, lda = leading(a)
    ldc = max(c.strides[0] // c.itemsize, c.shape[1])
    _syrk(syrk, LOWER, trans, a.shape[1], a.shape[0], a.ctypes.data, lda, c.dtype.type(keep), c.ctypes.data, ldc)
