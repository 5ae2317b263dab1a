"""What kernels that name their registers have in common: a compiler is told, entry by entry, what to keep in them."""

from __future__ import annotations

from llvmlite import ir
from numba.core.errors import TypingError

REGISTER_BITS = 256
"""Of the registers that most processors have; others use two of theirs, or half of one."""

NUMBER = ir.IntType(64)


def data_of(context, builder, signature, args, *places):
    """Return pointers to the first entries of those arguments that are arrays, all contiguous."""
    for i in places:
        if signature.args[i].layout != "C":
            raise TypingError(f"places are counted in contiguous arrays, not in {signature.args[i]}")
    return [context.make_array(signature.args[i])(context, builder, args[i]).data for i in places]


def vector_of(context, entry, lanes=None):
    """Return the type of some entries of one Numba type that are handled together: as many as fill a register."""
    return ir.VectorType(context.get_value_type(entry), lanes or REGISTER_BITS // entry.bitwidth)


def rows_from(builder, data, start, width, count):
    """Return pointers to the first entries of ``count`` rows, ``width`` entries apart."""
    pointers = [builder.gep(data, [start])]
    for _ in range(count - 1):
        pointers.append(builder.gep(pointers[-1], [width]))
    return pointers


def load(builder, pointer, offset, vector):
    """Return the entries from ``offset`` on as a vector."""
    return builder.load(_place(builder, pointer, offset, vector), align=_size(vector))


def store(builder, values, pointer, offset, vector):
    """Write a vector to the entries from ``offset`` on."""
    builder.store(values, _place(builder, pointer, offset, vector), align=_size(vector))


def _place(builder, pointer, offset, vector):
    return builder.bitcast(builder.gep(pointer, [offset]), vector.as_pointer())


def _size(vector):
    return 4 if isinstance(vector.element, ir.FloatType) else 8


def repeat(builder, scalar, vector):
    """Return a vector that holds the same number everywhere."""
    once = builder.insert_element(ir.Constant(vector, ir.Undefined), scalar, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(once, once, ir.Constant(ir.VectorType(ir.IntType(32), vector.count), None))


def multiply_add(builder, one, other, total):
    """Return ``one * other + total``, rounded once where the processor can."""
    return builder.fadd(total, builder.fmul(one, other, flags=("contract",)), flags=("contract",))
