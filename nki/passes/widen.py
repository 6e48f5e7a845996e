"""`NKI_PRECISE_FP=0`: a program whose narrow floats are stored as float32, so that nothing is rounded on the way.

It shows whether a wrong result comes from the kernel or from its data types. Only storage changes: instructions,
engines, addresses and time are those of the program itself. A tensor keeps its type where its bits matter: if it is
also seen as another type, if the user placed it over another tile, or if an instruction copies its bits to or from
such a tensor.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

from nki.dtypes import DType, bfloat16, float8_e4m3, float8_e4m3fn, float8_e5m2, float16, float32, tfloat32
from nki.ir.instruction import Instruction
from nki.ir.program import Access, Buffer, Program
from nki.passes.owners import Owners

NARROW = (float16, bfloat16, tfloat32, float8_e4m3, float8_e4m3fn, float8_e5m2)


def widened(program: Program) -> Program:
    """A copy of a finished program that stores its narrow floats as float32."""
    copied = copy.deepcopy(program, {id(part): part for part in _unchanging(program)})
    seen = [access for instruction in copied.instructions() for access in _windows(instruction)]
    declared = {buffer.name: buffer.dtype for buffer in copied.buffers}
    overlapping = Owners(copied.buffers)
    exact = {access.buffer.name for access in seen if access.dtype != declared[access.buffer.name]}
    wide = {
        name
        for name, dtype in declared.items()
        if dtype in NARROW and name not in exact and name not in overlapping
    }
    while True:
        for buffer in copied.buffers:
            _retype(buffer, float32 if buffer.name in wide else declared[buffer.name])
        for access in seen:
            if declared[access.buffer.name] in NARROW and access.buffer.name not in exact:
                access.dtype, access._sig = access.buffer.dtype, None
        clashing = {name for i in copied.instructions() for name in _clashing(i, declared)}
        if not clashing & wide:
            break
        wide -= clashing
    for instruction in copied.instructions():
        instruction._key = None
    for buffer in copied.buffers:
        buffer.placed = (
            buffer.placed and buffer.name in overlapping
        )  # other places no longer mean the same bytes
    return copied


def _unchanging(program: Program) -> Iterator[object]:
    """What the copy shares with the program."""
    yield program.target
    yield program.diagnostics
    yield from (buffer.span for buffer in program.buffers)
    for instruction in program.instructions():
        yield instruction.span
        yield from (operand for operand, _ in instruction.pairs)
        yield from (getattr(instruction, spec.name) for spec in instruction.attributes)


def _windows(instruction: Instruction) -> Iterator[Access]:
    yield from instruction.touched()
    yield from instruction.open_groups()


def _retype(buffer: Buffer, dtype: DType) -> None:
    elements = buffer.nbytes // buffer.dtype.itemsize
    if buffer.data is not None and buffer.dtype != dtype:
        buffer.data = buffer.data.astype(dtype.numpy)
    buffer.dtype = dtype
    buffer.nbytes = elements * dtype.itemsize


def _clashing(instruction: Instruction, declared: dict[str, DType]) -> set[str]:
    """Tensors of one declared type whose bits the instruction moves though they are stored in different types."""
    moved: dict[DType, set[Buffer]] = {}
    for operand, access in instruction.pairs:
        if instruction.compute_of(operand) == "raw":
            moved.setdefault(declared[access.buffer.name], set()).add(access.buffer)
    mixed = [buffers for buffers in moved.values() if len({buffer.dtype for buffer in buffers}) > 1]
    return {buffer.name for buffers in mixed for buffer in buffers}
