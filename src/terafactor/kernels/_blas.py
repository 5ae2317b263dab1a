"""BLAS inside kernels: matrix products without the interpreter lock, on parts of arrays that stay in place.

``numpy.matmul`` needs the lock between two calls, and two threads that want it at the same time put each other to
sleep; with tiles of a tenth of a millisecond that costs more than the second thread brings. Addresses of routines are
passed to kernels as integers, so that compiled code can be cached.
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
from scipy.linalg import cython_blas, cython_lapack
from threadpoolctl import threadpool_info

from terafactor.kernels._jit import jit
from terafactor.kernels._registers import NUMBER, data_of

CHAR = ir.IntType(8)
FLOAT64 = np.dtype(np.float64)

OURS = re.compile(r"[\\/](numpy|scipy)(\.libs)?[\\/]")
"""Where wheels of NumPy and SciPy keep their libraries."""


@cache
def address(routine: str, dtype: np.dtype[Any]) -> int:
    """Return where a routine ("gemm", "syrk", "trsm", and "potrf" of LAPACK) lies in memory, for float32 or float64.

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
    """Return the address of a routine in the BLAS, or LAPACK, that SciPy uses."""
    capsule = (cython_blas.__pyx_capi__ | cython_lapack.__pyx_capi__)[name]
    label = ctypes.pythonapi.PyCapsule_GetName
    label.restype, label.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(pointer(capsule, label(capsule)))


def _call(context, builder, function, characters, integers, scalars, arrays, layout):
    """Emit a call in Fortran's way, every argument by reference.

    Integers are stored in 64 bits: on a little-endian machine a BLAS that reads 32 of them finds the same number.
    layout: one letter per argument, which list it is taken from next: c, i, s (scalar of the data's type) or a.
    """
    given = {
        "c": iter([cgutils.alloca_once_value(builder, character) for character in characters]),
        "i": iter([cgutils.alloca_once_value(builder, number) for number in integers]),
        "s": iter([cgutils.alloca_once_value(builder, scalar) for scalar in scalars]),
        "a": iter(arrays),
    }
    arguments = [next(given[letter]) for letter in layout]
    signature = ir.FunctionType(ir.VoidType(), [argument.type for argument in arguments])
    builder.call(builder.inttoptr(function, signature.as_pointer()), arguments)
    return context.get_dummy_value()


def _entries(context, builder, signature, args, *places):
    """Return pointers to entries of flattened arrays: of each argument at ``places``, the one that the next counts."""
    starts = data_of(context, builder, signature, args, *places)
    return [builder.gep(start, [args[place + 1]]) for start, place in zip(starts, places, strict=True)]


@intrinsic
def _gemm(typing, function, trans_a, trans_b, m, n, k, a, at_a, lda, b, at_b, ldb, beta, c, at_c, ldc):
    """Column-major ``c = op(a) @ op(b) + beta * c``; trans_a and trans_b are the codes of the letters N and T."""

    def codegen(context, builder, signature, args):
        function, trans_a, trans_b, m, n, k, _, _, lda, _, _, ldb, beta, _, _, ldc = args
        entries = _entries(context, builder, signature, args, 6, 9, 13)
        scalar = context.get_value_type(signature.args[6].dtype)
        letters = [builder.trunc(letter, CHAR) for letter in (trans_a, trans_b)]
        scalars = [ir.Constant(scalar, 1.0), beta]
        return _call(context, builder, function, letters, [m, n, k, lda, ldb, ldc], scalars, entries, "cciiisaiaisai")

    integer = types.int64
    signature = types.void(
        integer, integer, integer, integer, integer, integer, a, integer, integer, b, integer, integer, a.dtype, c,
        integer, integer,
    )  # fmt: skip
    return signature, codegen


@intrinsic
def _syrk(typing, function, triangle, trans, n, k, a, at_a, lda, c, at_c, ldc):
    """Column-major ``c = op(a) @ op(a)'``; codes of letters: triangle written, U or L, and trans, N or T for a'."""

    def codegen(context, builder, signature, args):
        function, triangle, trans, n, k, _, _, lda, _, _, ldc = args
        entries = _entries(context, builder, signature, args, 5, 8)
        scalar = context.get_value_type(signature.args[5].dtype)
        letters = [builder.trunc(letter, CHAR) for letter in (triangle, trans)]
        scalars = [ir.Constant(scalar, 1.0), ir.Constant(scalar, 0.0)]
        return _call(context, builder, function, letters, [n, k, lda, ldc], scalars, entries, "cciisaisai")

    integer = types.int64
    signature = types.void(integer, integer, integer, integer, integer, a, integer, integer, c, integer, integer)
    return signature, codegen


@intrinsic
def _trsm(typing, function, side, triangle, trans, diagonal, m, n, a, lda, b, ldb):
    """Column-major ``op(a) x = b`` with a triangular matrix, x in place of b; codes of letters as in BLAS."""

    def codegen(context, builder, signature, args):
        function, side, triangle, trans, diagonal, m, n, _, lda, _, ldb = args
        pointers = data_of(context, builder, signature, args, 7, 9)
        one = ir.Constant(context.get_value_type(signature.args[7].dtype), 1.0)
        letters = [builder.trunc(letter, CHAR) for letter in (side, triangle, trans, diagonal)]
        return _call(context, builder, function, letters, [m, n, lda, ldb], [one], pointers, "cccciisaiai")

    integer = types.int64
    signature = types.void(integer, integer, integer, integer, integer, integer, integer, a, integer, b, integer)
    return signature, codegen


@intrinsic
def _potrf(typing, function, triangle, n, a, lda):
    """Column-major Cholesky factor of a, in its place; returns zero if there is one."""

    def codegen(context, builder, signature, args):
        function, triangle, n, _, lda = args
        (pointer,) = data_of(context, builder, signature, args, 3)
        failed = cgutils.alloca_once_value(builder, ir.Constant(NUMBER, 0))
        letters = [builder.trunc(triangle, CHAR)]
        _call(context, builder, function, letters, [n, lda], [], [pointer, failed], "ciaia")
        return builder.load(failed)

    integer = types.int64
    return integer(integer, integer, integer, a, integer), codegen


N, T = ord("N"), ord("T")
UPPER, LOWER, LEFT = ord("U"), ord("L"), ord("L")


@jit
def product(gemm, m, n, k, a, at_a, lda, b, at_b, ldb, c, at_c, ldc):
    """``c = a @ b``, (m, k) by (k, n), row-major: each matrix is an array, where it begins, and its row length.

    gemm: ``address("gemm", dtype)``. Row-major c is column-major c', and c' = b' a'.
    """
    _gemm(gemm, N, N, n, m, k, b, at_b, ldb, a, at_a, lda, c.dtype.type(0), c, at_c, ldc)


@jit
def add_product(gemm, m, n, k, a, at_a, lda, b, at_b, ldb, keep, c, at_c, ldc):
    """``c = keep * c + a @ b``, as in :func:`product`."""
    _gemm(gemm, N, N, n, m, k, b, at_b, ldb, a, at_a, lda, c.dtype.type(keep), c, at_c, ldc)


@jit
def product_transposed(gemm, m, n, k, a, at_a, lda, b, at_b, ldb, c, at_c, ldc):
    """``c = a @ b.T``, (m, k) by (n, k), row-major, as in :func:`product`."""
    _gemm(gemm, T, N, n, m, k, b, at_b, ldb, a, at_a, lda, c.dtype.type(0), c, at_c, ldc)


@jit
def add_product_transposed(gemm, m, n, k, a, at_a, lda, b, at_b, ldb, keep, c, at_c, ldc):
    """``c = keep * c + a @ b.T``, as in :func:`product_transposed`."""
    _gemm(gemm, T, N, n, m, k, b, at_b, ldb, a, at_a, lda, c.dtype.type(keep), c, at_c, ldc)


@jit
def transposed_product(gemm, m, n, k, a, at_a, lda, b, at_b, ldb, c, at_c, ldc):
    """``c = a.T @ b``, (k, m) by (k, n), row-major, as in :func:`product`."""
    _gemm(gemm, N, T, n, m, k, b, at_b, ldb, a, at_a, lda, c.dtype.type(0), c, at_c, ldc)


@jit
def add_transposed_product(gemm, m, n, k, a, at_a, lda, b, at_b, ldb, keep, c, at_c, ldc):
    """``c = keep * c + a.T @ b``, as in :func:`transposed_product`."""
    _gemm(gemm, N, T, n, m, k, b, at_b, ldb, a, at_a, lda, c.dtype.type(keep), c, at_c, ldc)


@jit
def square(syrk, n, k, a, at_a, lda, c, at_c, ldc):
    """``c = a @ a.T``, (n, k), row-major; only the lower triangle of c is written."""
    _syrk(syrk, UPPER, T, n, k, a, at_a, lda, c, at_c, ldc)


@jit
def transposed_square(syrk, n, k, a, at_a, lda, c, at_c, ldc):
    """``c = a.T @ a``, (k, n), row-major; only the lower triangle of c is written."""
    _syrk(syrk, UPPER, N, n, k, a, at_a, lda, c, at_c, ldc)


@jit
def transposed_square_upper(syrk, n, k, a, at_a, lda, c, at_c, ldc):
    """``c = a.T @ a``, (k, n), row-major; only the upper triangle of c is written."""
    _syrk(syrk, LOWER, N, n, k, a, at_a, lda, c, at_c, ldc)


@jit
def factorize(potrf, a):
    """Put in the lower triangle of ``a`` (k, k) the L of ``a = L L'``; return whether there is one."""
    failed, n_positive = _potrf(potrf, UPPER, len(a), a, len(a)), 0
    for j in range(len(a)):
        n_positive += a[j, j] > 0.0  # some libraries let NaN pass
    return failed == 0 and n_positive == len(a)


@jit
def solve_rows(trsm, factor, rows):
    """Put in ``rows`` (b, k) what gives them when multiplied by ``L L'``. factor (k, k): of :func:`factorize`."""
    n_rows, k = rows.shape
    _trsm(trsm, LEFT, UPPER, T, N, k, n_rows, factor, k, rows, k)
    _trsm(trsm, LEFT, UPPER, N, N, k, n_rows, factor, k, rows, k)
