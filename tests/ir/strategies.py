"""Hypothesis strategies that make random legal programs from a registry of instruction classes.

They know instructions only by their declarations: sizes come from the dimension letters, windows and dtypes from the
operands, attribute values from a pool of which each kind picks what it accepts. An instruction that the verifier
refuses (by rules that tie parameters together) is made anew. Hypothesis draws the size, texts, numbers and a seed;
the thousand small choices come from the seed, which is a hundred times faster than drawing each.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Any

import numpy as np
from hypothesis import strategies as st

from nki import enums
from nki.dtypes import ALL, DType
from nki.enums import MemoryRegion
from nki.enums import engine as Engine
from nki.errors import NkiError
from nki.ir.builder import Builder
from nki.ir.control import Loop
from nki.ir.instruction import Instruction
from nki.ir.operands import REQUIRED, Attribute, Kind, Operand, RegisterOperand, Symbol
from nki.ir.program import Access, Buffer, Program, Shape, row_major
from nki.span import UNKNOWN, Frame, Span
from nki.target import get_target
from tests.ir.device import fill, placed, register_operand
from tests.isa.ties import declared, dimensions, size_of, value_of

TRIES = 60
"""How often a refused instruction is made anew before it is left out."""

SIZES = (1, 1, 2, 3, 4, 6, 8, 16, 32)
TIED: dict[str, dict[str, Any]] = {
    "nc_matmul_mx": {"dst": "M N", "stationary_scale": "4 M", "moving_scale": "4 N", "K": "32", "M": "2"},
    "quantize_mx": {"src": "32 8", "dst": "32 2", "dst_scale": "4 2"},
    "topk": {"src": "16 1", "n": "8"},
    "collective_permute_implicit": {"srcs_by_channel": "4 8", "dsts_by_channel": "4 8"},
    "collective_permute_implicit_reduce": {
        **dict.fromkeys(("srcs0_by_channel", "srcs1_by_channel", "dsts_by_channel"), "4 8")
    },
    **{name: {"srcs": "4 8", "dsts": "4 8"} for name in ("all_reduce", "collective_permute")},
    **{
        name: {"srcs": "4 8", "dsts": "4 8", "collective_dim": "0"}
        for name in ("all_gather", "all_to_all", "reduce_scatter")
    },
    **{
        name: {"srcs": "4 8", "dsts": "4 8", "metadata_tensor": "3 1"}
        for name in ("all_gather_v", "all_to_all_v")
    },
}
"""What the rules of an instruction tie together: sizes of letters, dimensions of operands, values of attributes."""

TEXTS = (
    "x",
    "größe",
    "λ",
    "a b",
    "it's",
    "",
    "<lambda>",
    "f.<locals>.g",
    "inf",
    "None",
    "1",
    "\\n\n\x00\udc80☃",
)
NUMBERS = (0, 1, -1, 7, 2**31, -(2**70), 0.0, -0.0, 0.1, 1e-45, -1.5e300, math.inf, -math.inf, math.nan)
VALUES = (
    *(None, True, False, (), (0, 1), (1, 2, 3), (0,) * 32, ((1, 4), (0, 2)), ((-3, 1),), ((0,),), ((0, 0),)),
    *(member for e in vars(enums).values() if isinstance(e, type) and issubclass(e, Enum) for member in e),
    *ALL,
)


@cache
def accepted(kind: Kind, words: tuple[str, ...], more: tuple[Any, ...]) -> list[Any]:
    """What a kind makes of the values of the pool, and of words such as the names of operators."""
    found = []
    for value in (*VALUES, *NUMBERS, *TEXTS, *more, *map(Symbol, words)):
        for make in (kind.read,) if isinstance(value, Symbol) else (kind.convert, kind.read):
            try:
                found.append(make(value))
                break
            except (NkiError, TypeError, ValueError, AttributeError, KeyError):
                continue
    return found


class Maker:
    """Makes one program; every choice comes from `chance`."""

    def __init__(
        self,
        registry: Mapping[str, type[Instruction]],
        words: tuple[str, ...],
        texts: Sequence[str],
        numbers: Sequence[float],
        chance: random.Random,
    ) -> None:
        self.classes = [registry[name] for name in sorted(registry)]
        self.words = words
        self.texts = (*TEXTS, *texts)
        self.numbers = (*NUMBERS, *numbers)
        self.chance = chance
        self.pick = chance.choice
        target = get_target(self.pick(["trn1", "trn2", "trn3"]))
        self.program = Program(self.pick(self.texts), target, cores=[])
        self.spans = [self.span() for _ in range(4)]
        self.tries = TRIES
        self.grid: int | None = None
        self.number = 0
        self.loops: list[Loop] = []

    def often(self, probability: float = 0.5) -> bool:
        return self.chance.random() < probability

    def span(self) -> Span:
        """A place with one to three frames, or none."""

        def number() -> int | None:
            return self.pick([None, self.chance.randrange(100)])

        def frame() -> Frame:
            file, function = self.pick(self.texts), self.pick(self.texts)
            return Frame(file, self.chance.randrange(999), function, number(), number())

        return Span(tuple(frame() for _ in range(self.chance.randint(1, 3)))) if self.often(0.8) else UNKNOWN

    def buffer(self, shape: Shape, dtype: DType, memory: MemoryRegion, role: str = "internal") -> Buffer:
        """A new buffer; on chip it may have an address, from the user or not."""
        stem = self.pick(["t", "acc", "größe", "odd name", "q'"])
        address = (0, self.chance.randrange(64) * 4) if memory.on_chip and self.often() else None
        data = None
        if role == "constant":
            raw = self.chance.randbytes(math.prod(shape) * dtype.itemsize)
            data = np.frombuffer(raw, dtype.numpy).reshape(shape)
        name = f"{stem}.{len(self.program.buffers)}"
        label, span, core = self.pick([stem, "", "it's"]), self.pick(self.spans), self.pick([0, 0, 1])
        loop = self.loops[-1] if self.loops and self.often() else None
        buffer = Buffer(
            *(name, shape, dtype, memory),
            role=role,
            address=address,
            label=label,
            span=span,
            core=core if loop is None else self.number,
            data=data,
            loop=loop,
        )
        buffer.placed = address is not None and self.often()
        self.program.buffers.append(buffer)
        return buffer

    def window(self, shape: Shape, dtype: DType, memory: MemoryRegion) -> Access:
        """A window of this shape: whole, sliced, broadcast, of fewer dimensions, or reinterpreted and backwards."""
        style = self.chance.randrange(5)
        if style == 0:
            return self._reinterpreted(shape, dtype, memory)
        pad = shape
        if style > 1:
            pad = tuple(size + self.chance.randrange(3) for size in shape)
        if memory.on_chip:
            pad = (shape[0], *pad[1:])
        elif style == 2:
            pad = (3, *pad)
        known = [b for b in self.program.buffers if (b.shape, b.dtype, b.memory) == (pad, dtype, memory)]
        known = [b for b in known if b.loop is None or b.loop in self.loops]
        buffer = self.pick(known) if known and self.often() else self.buffer(pad, dtype, memory)
        strides = row_major(pad)
        offset = 0
        if len(pad) > len(shape):
            offset = self.chance.randrange(pad[0]) * strides[0]
            pad, strides = pad[1:], strides[1:]
        offset += sum(self.chance.randint(0, p - s) * step for p, s, step in zip(pad, shape, strides))
        if style == 3:
            strides = (strides[0], *(self.pick([step, 0]) for step in strides[1:]))
        return Access(buffer, dtype, offset, shape, strides)

    def _reinterpreted(self, shape: Shape, dtype: DType, memory: MemoryRegion) -> Access:
        other = self.pick([d for d in ALL if d.itemsize <= dtype.itemsize])
        factor = dtype.itemsize // other.itemsize
        buffer = self.buffer((*shape[:-1], shape[-1] * factor), other, memory)
        if len(shape) > 1 and self.often():
            return Access(buffer, dtype, shape[-1] - 1, shape, (*row_major(shape)[:-1], -1))
        return Access(buffer, dtype, 0, shape, row_major(shape))

    def operand(self, operand: Operand, sizes: dict[str, int], usual: DType, dims: Sequence[str] = ()) -> Any:
        """A window, several of them, or a number for one operand."""
        if operand.many:
            count = 1 if dims else self.pick([1, 2, 2, 3, 17])
            return tuple(self.operand(member, sizes, usual, dims) for member in operand.members(count))
        if operand.optional and self.often():
            return operand.default
        if operand.scalar and self.often():
            return self.pick(self.numbers)
        memory = self.pick(sorted(operand.memories, key=lambda m: m.value))
        dtype = usual if usual in operand.dtypes and self.often(0.8) else self.pick(sorted(operand.dtypes))
        dims = [size_of(word, sizes) or self.pick(SIZES) for word in dims or operand.dims]
        if len(dims) == 1:
            shape = (1, *dims) if self.often() else (*dims, 1)
            return placed(self, operand, self.window(shape, dtype, memory))
        rows, free = dims
        first = self.pick([n for n in range(1, free + 1) if free % n == 0])
        shape = (rows, free) if self.often(0.7) else (rows, first, free // first)
        return placed(self, operand, self.window(shape, dtype, memory))

    def attribute(self, attribute: Attribute) -> Any:
        """A value for one attribute; the default more often than not."""
        if attribute.default is not REQUIRED and self.often(0.6):
            return attribute.default
        options = accepted(attribute.kind, self.words, self.numbers + self.texts)
        return self.pick(options) if options else attribute.default

    def instruction(self, cls: type[Instruction]) -> Instruction | None:
        """One unverified instruction; `None` if the pool has no value for some attribute."""
        letters = {letter for operand in cls.operands for letter in operand.dims if letter.isalpha()}
        sizes = {letter: self.pick(SIZES) for letter in sorted(letters)}
        tied = (TIED.get(cls.mnemonic) or declared(cls.mnemonic)) if self.often(0.8) else {}
        sizes.update({letter: int(tied[letter]) for letter in sizes if letter in tied})
        usual = self.pick(ALL)
        values: dict[str, Any] = {}
        for name, spec in cls.parameters.items():
            if isinstance(spec, Operand):
                wanted = tied.get(name, "")
                number = not isinstance(wanted, str)
                values[name] = wanted if number else self.operand(spec, sizes, usual, dimensions(wanted))
            elif isinstance(spec, RegisterOperand):
                values[name] = register_operand(self, spec)
            elif isinstance(spec, Attribute):
                values[name] = value_of(spec, tied[name]) if name in tied else self.attribute(spec)
            else:
                values[name] = self.pick([Engine.unknown, *cls.engines])
        missing = any(value is REQUIRED for value in values.values())
        return None if missing else cls(values, self.pick(self.spans))

    def core(self, number: int, size: int) -> None:
        """One instruction list."""
        builder = Builder(self.program.name, self.program.target, grid=self.grid, core=number)
        builder.program.buffers = self.program.buffers
        builder.program.registers = self.program.registers
        self.number = number
        fill(self, builder, size, [])
        self.program.cores += builder.program.cores

    def make(self, sizes: Sequence[int]) -> Program:
        """A program with so many instructions on each core."""
        program = self.program
        hbm = (MemoryRegion.private_hbm, MemoryRegion.shared_hbm)
        for _ in range(self.chance.randrange(3)):
            shape = tuple(self.pick(SIZES) for _ in range(self.chance.randint(1, 3)))
            program.arguments.append(self.buffer(shape, self.pick(ALL), self.pick(hbm), "argument"))
        if self.often(0.3):
            self.buffer((2, 3), self.pick(ALL), hbm[0], "constant")
        self.grid = len(sizes) if len(sizes) > 1 else None
        for number, size in enumerate(sizes):
            self.core(number, size)
        program.span = self.pick(self.spans)
        program.flags = {self.pick(self.texts) for _ in range(self.chance.randrange(3))}
        results = [
            b for b in program.buffers if (b.role == "argument" or b.memory is hbm[1]) and b.loop is None
        ]
        if results and self.often(0.8):
            program.result_form = self.pick(["one", "tuple"])
            count = 1 if program.result_form == "one" else self.chance.randrange(3)
            program.results = [self.pick(results) for _ in range(count)]
        return program


def programs(
    registry: Mapping[str, type[Instruction]], words: tuple[str, ...] = (), most: int = 6
) -> st.SearchStrategy[Program]:
    """Random programs that the verifier accepts, on one or two cores.

    `words` are names that attribute kinds may read (operators, functions); `most` instructions per core.
    """

    def make(sizes: list[int], texts: list[str], numbers: list[float], seed: int) -> Program:
        return Maker(registry, words, texts, numbers, random.Random(seed)).make(sizes)

    return st.builds(
        make,
        st.lists(st.integers(0, most), min_size=1, max_size=2),
        st.lists(st.text(max_size=8), max_size=3),
        st.lists(st.floats(), max_size=3),
        st.integers(0, 2**32 - 1),
    )
