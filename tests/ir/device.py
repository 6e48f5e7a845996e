"""What random programs have that only the device knows: registers, loops, and windows whose place an index chooses.

Functions on a `Maker` of `strategies.py`, which makes all the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nki.dtypes import int8, int32, uint32
from nki.enums import MemoryRegion
from nki.errors import NkiError
from nki.ir.builder import Builder
from nki.ir.control import Dynamic, Loop, Register
from nki.ir.instruction import Instruction
from nki.ir.operands import REQUIRED, Operand, RegisterOperand
from nki.ir.program import Access

if TYPE_CHECKING:
    from tests.ir.strategies import Maker

DEEPEST = 3
BOUNDS = (0, 1, 7, -3, -(2**31), 2**31 - 1)


def register(maker: Maker, *, frozen: bool = False) -> Register:
    """A new register."""
    stem = maker.pick(["r", "n", "größe", "odd name", "q'"])
    name = f"{stem}.{len(maker.program.registers)}"
    found = Register(name, frozen=frozen, span=maker.pick(maker.spans))
    maker.program.registers.append(found)
    return found


def readable(maker: Maker) -> Register:
    """A register that may be read here: a counter of a loop around, or any that is no counter."""
    around = {loop.counter for loop in maker.loops}
    known = [each for each in maker.program.registers if not each.frozen or each in around]
    return maker.pick(known) if known and maker.often(0.8) else register(maker)


def register_operand(maker: Maker, spec: RegisterOperand) -> Any:
    """A register, or a number where one may stand in its place."""
    if spec.default is not REQUIRED and maker.often():
        return spec.default
    if spec.direction == "out":
        known = [each for each in maker.program.registers if not each.frozen]
        return maker.pick(known) if known and maker.often(0.7) else register(maker)
    return maker.pick([0, 1, -5, 2**31 - 1]) if spec.numbers and maker.often() else readable(maker)


def placed(maker: Maker, operand: Operand, access: Access) -> Access:
    """Sometimes, the same window at a place that the device chooses."""
    if not maker.often(0.2):
        return access
    stride, count = maker.chance.randrange(9), maker.chance.randint(1, 9)
    shape, strides = access.shape, access.strides
    index: Register | Access
    if operand.rows and access.memory.is_hbm and maker.often():
        kind, index = "vector", maker.window((shape[0], 1), int32, MemoryRegion.sbuf)
        if maker.often():
            shape = (shape[0], *shape[1:])
            strides = (0, *strides[1:])
    elif operand.indirect and access.memory.on_chip and len(shape) == 2 and maker.often():
        kind, strides = "indirect", (strides[0], 0)
        index = maker.window((shape[0], shape[1]), maker.pick([int32, int8]), MemoryRegion.sbuf)
    else:
        kind = "scalar"
        index = maker.window((1, 1), uint32, MemoryRegion.sbuf) if maker.often(0.3) else readable(maker)
    dynamic = Dynamic(kind, index, stride, count)
    return Access(access.buffer, access.dtype, access.offset, shape, strides, dynamic)


def loop(maker: Maker) -> Loop:
    """A loop with an empty body."""
    span = maker.pick(maker.spans)
    if maker.often(0.4):
        return Loop("while", condition=readable(maker), span=span)
    start, stop = (readable(maker) if maker.often() else maker.pick(BOUNDS) for _ in range(2))
    counter = register(maker, frozen=True)
    return Loop("for", counter=counter, start=start, stop=stop, step=maker.pick([1, 1, 2, 9]), span=span)


def fill(maker: Maker, builder: Builder, size: int, visible: list[Instruction]) -> None:
    """Append so many instructions to the builder's block, some of them in loops. `visible`: what they may wait for."""
    while size > 0:
        if len(maker.loops) < DEEPEST and maker.often(0.25):
            inside = maker.chance.randint(0, size)
            with builder.loop(loop(maker)) as new:
                maker.loops.append(new)
                fill(maker, builder, inside, [*visible])
                maker.loops.pop()
            size -= inside
            if inside == 0 and maker.often():
                size -= 1
            continue
        size -= 1
        _append(maker, builder, visible)


def _append(maker: Maker, builder: Builder, visible: list[Instruction]) -> None:
    cls = maker.pick(maker.classes)
    program = maker.program
    for _ in range(maker.tries):
        buffers, registers = len(program.buffers), len(program.registers)
        instruction = maker.instruction(cls)
        try:
            if instruction is not None:
                builder.append(instruction)
                count = maker.chance.randrange(min(3, len(visible) + 1))
                instruction.after = tuple(maker.chance.sample(visible, count))
                visible.append(instruction)
                return
        except NkiError:
            del program.buffers[buffers:]
            del program.registers[registers:]
