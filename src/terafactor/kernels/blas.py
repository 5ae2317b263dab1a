"""BLAS inside kernels: matrix products without the interpreter lock, on slices of arrays, without copies.

``numpy.matmul`` takes the lock between two calls. A tile takes a tenth of a millisecond: threads that contend for the
lock that often lose more time than they gain. Numba's ``np.dot`` copies slices. The addresses of routines are passed to
kernels as integers, so that compiled code can be cached.
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

FLOAT64 = np.dtype(np.float64)

BUNDLED = re.compile(r"[\\/](numpy|scipy)(\.libs)?[\\/]")
"""Paths of the libraries in wheels of NumPy and SciPy."""


@cache
def address(routine: str, dtype: np.dtype[Any]) -> int:
    """Return the address of a BLAS routine, "gemm" or "syrk", for float32 or float64.

    NumPy and SciPy each ship an OpenBLAS. The newest is used: on thin matrices releases differ by up to 50 %. With any
    other BLAS, it is the routine of SciPy's Cython interface.
    """
    name = ("s" if dtype == np.float32 else "d") + routine
    for library in _openblas_libraries():
        for pattern in ("scipy_{}_64_", "scipy_{}_", "{}_64_", "{}_"):
            function = getattr(library, pattern.format(name), None)
            if function is not None:
                return int(ctypes.cast(function, ctypes.c_void_p).value or 0)
    return _scipy_address(name)


def _openblas_libraries() -> list[ctypes.CDLL]:
    """Return the OpenBLAS libraries of this process, the newest first: only those of NumPy and SciPy if there are any.

    Libraries of other packages depend on what else is imported, and the bits of results must not.
    """
    found = [library for library in threadpool_info() if library["internal_api"] == "openblas"]
    found = [library for library in found if BUNDLED.search(library["filepath"])] or found
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


def _matrix(context, builder, kind, value):
    """Return how BLAS sees a matrix whose rows, or columns, are contiguous.

    That is its address, letter (N for contiguous rows, else T), leading dimension, and numbers of rows and columns.
    """
    array = context.make_array(kind)(context, builder, value)
    rows, columns = cgutils.unpack_tuple(builder, array.shape)
    row_step, column_step = cgutils.unpack_tuple(builder, array.strides)
    by_row = builder.icmp_signed("==", column_step, array.itemsize)
    letter = builder.select(by_row, _letter("N"), _letter("T"))
    step = builder.sdiv(builder.select(by_row, row_step, column_step), array.itemsize)
    width = builder.select(by_row, columns, rows)  # BLAS refuses a smaller step, which a single row may have
    leading = builder.select(builder.icmp_signed("<", step, width), width, step)
    return array.data, letter, leading, rows, columns


def _letter(letter):
    return ir.Constant(ir.IntType(8), ord(letter))


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


@intrinsic
def add_product(typing, gemm, a, b, keep, c):
    """``c = keep * c + a @ b``. a, b: slices or transposes; c: contiguous rows. gemm: ``address("gemm", dtype)``.

    BLAS is column-major: it sees the transposes, and ``c.T = b.T @ a.T``. With keep 0, c may hold anything.
    """

    def codegen(context, builder, signature, args):
        kinds = signature.args
        a, trans_a, lda, m, k = _matrix(context, builder, kinds[1], args[1])
        b, trans_b, ldb, _, n = _matrix(context, builder, kinds[2], args[2])
        c, _, ldc, _, _ = _matrix(context, builder, kinds[4], args[4])
        beta = context.cast(builder, args[3], kinds[3], kinds[4].dtype)
        one = ir.Constant(beta.type, 1.0)
        _call(builder, args[0], [trans_b, trans_a, n, m, k, one, b, ldb, a, lda, beta, c, ldc])
        return context.get_dummy_value()

    return types.void(types.int64, a, b, keep, c), codegen


@intrinsic
def add_upper_square(typing, syrk, a, keep, c):
    """``c = keep * c + a.T @ a``, its upper triangle only. a: slice or transpose; c: contiguous rows."""

    def codegen(context, builder, signature, args):
        kinds = signature.args
        a, trans, lda, k, n = _matrix(context, builder, kinds[1], args[1])
        c, _, ldc, _, _ = _matrix(context, builder, kinds[3], args[3])
        beta = context.cast(builder, args[2], kinds[2], kinds[3].dtype)
        one = ir.Constant(beta.type, 1.0)
        _call(builder, args[0], [_letter("L"), trans, n, k, one, a, lda, beta, c, ldc])
        return context.get_dummy_value()

    return types.void(types.int64, a, keep, c), codegen
