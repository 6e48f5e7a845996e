"""How the operands of an instruction are shown to its semantics: in which shape, strides and type.

That depends only on the instruction's `key()`, so it is worked out once per kind of call. `bind.py` makes the arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from interpreter.memory import byte_layout
from interpreter.views import common_view, restride
from nki import dtypes
from nki.ir.instruction import Instruction
from nki.ir.operands import Operand
from nki.ir.program import Access, Shape

_COMPUTE = {"float32": np.dtype(np.float32), "int32": np.dtype(np.int32)}


@dataclass(frozen=True)
class Shown:
    """How one operand is shown to the semantics.

    strides: in bytes; `None` if the window cannot be shown in that shape without a copy.
    compute: the array type; direct: whether the window itself can be handed out.
    rounds: whether values are rounded to the 10 mantissa bits of tfloat32 when stored (bits that are moved are not).
    """

    shape: Shape
    strides: Shape | None
    compute: np.dtype[Any]
    direct: bool
    rounds: bool


@dataclass(frozen=True)
class Arrangement:
    """How all operands of an instruction are shown, and the rank of the elementwise shape."""

    operands: dict[str, Shown]
    rank: int
    converts: bool


_arrangements: dict[tuple[Any, ...], Arrangement] = {}
_REMEMBERED_MOST = 100_000


def arrangement(instruction: Instruction, pitches: Shape = ()) -> Arrangement:
    """Shapes, strides and types of the arrays of an instruction; the same for all instructions of one `key()`.

    pitches: per operand, the bytes between partitions where they are not those of the tensor's own rows, else 0.
    """
    key = (pitches, *instruction.key())
    found = _arrangements.get(key)
    if found is None:
        pairs = instruction.pairs
        windows = {
            operand.name: byte_layout(access, pitch or access.buffer.partition_bytes)[1]
            for (operand, access), pitch in zip(pairs, pitches or (0,) * len(pairs))
        }
        arrange = _declared if instruction.layout == "declared" else _elementwise
        shapes, strides, rank = arrange(instruction, windows)
        shown = {o.name: _show(instruction, o, a, shapes[o.name], strides[o.name]) for o, a in pairs}
        converts = any(not s.direct for s in shown.values())
        found = Arrangement(shown, rank, converts)
        if len(_arrangements) > _REMEMBERED_MOST:
            _arrangements.clear()
        _arrangements[key] = found
    return found


def _show(
    instruction: Instruction, operand: Operand, access: Access, shape: Shape, strides: Shape | None
) -> Shown:
    compute = instruction.compute_of(operand)
    stored = access.dtype.numpy
    wanted = stored if compute == "raw" else _COMPUTE[compute]
    if compute == "int32" and stored.kind in "iu" and stored.itemsize == wanted.itemsize:
        wanted = stored
    rounds = access.dtype is dtypes.tfloat32 and operand.is_output and compute != "raw"
    direct = strides is not None and wanted == stored and not rounds
    if operand.is_output and any(n > 1 and step == 0 for n, step in zip(access.shape, access.strides)):
        direct = False  # elements of a repeated destination must not meet before the last one is stored
    return Shown(shape, strides, wanted, direct, rounds)


def _declared(
    instruction: Instruction, windows: dict[str, Shape]
) -> tuple[dict[str, Shape], dict[str, Shape | None], int]:
    wanted = instruction.array_shapes()
    shapes: dict[str, Shape] = {}
    strides: dict[str, Shape | None] = {}
    for operand, access in instruction.accesses():
        shape = wanted.get(operand.name, access.shape)
        shapes[operand.name] = shape
        strides[operand.name] = restride(access.shape, windows[operand.name], shape)
    return shapes, strides, 2


def _elementwise(
    instruction: Instruction, windows: dict[str, Shape]
) -> tuple[dict[str, Shape], dict[str, Shape | None], int]:
    shapes: dict[str, Shape] = {}
    strides: dict[str, Shape | None] = {}
    accesses = list(instruction.accesses())
    main = [(o, a) for o, a in accesses if o.dims[-1] not in ("1", "*")]
    rank = 2
    if main:
        flat = len(main[0][0].dims) == 1
        shape, views = common_view(tuple((a.shape, windows[o.name]) for o, a in main), not flat)
        rank = len(shape)
        for (operand, _), seen in zip(main, views):
            shapes[operand.name] = shape
            strides[operand.name] = seen
    for operand, access in accesses:
        if operand.name in shapes:
            continue
        shape = access.shape
        if operand.dims[-1] == "1":
            shape = (access.partitions, *(1,) * (rank - 1))
        shapes[operand.name] = shape
        strides[operand.name] = restride(access.shape, windows[operand.name], shape)
    return shapes, strides, rank
