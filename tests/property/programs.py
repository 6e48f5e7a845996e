"""Random programs that can be run: instructions of the registry chained over a few shared tensors. Tests nothing.

A program is a list of steps, made while a builder accepts them one by one (`Maker`), and performed again on any other
builder, an eager one too (`Player`, in `playing.py`). Every choice comes from one seeded generator. Windows are made
with the views that kernels use; some are placed by a register, a tile of one value or a tile of rows.
"""

from __future__ import annotations

import math
import random
from string import ascii_uppercase
from typing import Any

import nki.isa as nisa
from nki import dtypes
from nki.dtypes import ALL, DType, as_dtype
from nki.enums import MemoryRegion
from nki.enums import engine as Engine
from nki.errors import NkiError
from nki.ir.builder import Builder
from nki.ir.control import Register
from nki.ir.instruction import REGISTRY, Instruction
from nki.ir.operands import REQUIRED, Attribute, Operand, RegisterOperand
from nki.ir.program import Access, Buffer, Shape
from nki.isa.activation_functions import ACTIVATIONS
from nki.isa.alu import ALU
from nki.target import get_target
from tests.ir.strategies import accepted
from tests.isa.ties import declared, dimensions, size_of, value_of
from tests.property.hints import ATTRIBUTES, DIMS, INDICES, PLACES
from tests.property.playing import LARGEST_INDEX, NEW, Call, Player, Repeat, Tile
from tests.property.windows import Windows

WORDS = (*ALU, *ACTIVATIONS)
TRIES = 40
SIZES = (1, 1, 2, 3, 4, 5, 8, 16, 32)
NUMBERS = (0, 1, -1, 2, 7, 0.0, -0.0, 0.1, -1.5, 1e-45, 3e38, math.inf, -math.inf, math.nan, 2**31, -(2**40))

OFTEN = ("dma_copy", "tensor_copy", "tensor_tensor", "tensor_scalar")
TOGETHER = ("core_barrier", "sendrecv")
CLASSES = [
    cls
    for name, cls in sorted(REGISTRY.items())
    if cls.namespace == "nisa" and hasattr(nisa, name) and not cls.creates and name not in TOGETHER
]
sbuf, psum, hbm = MemoryRegion.sbuf, MemoryRegion.psum, MemoryRegion.private_hbm
FREE = ((16,), (64,), (96,), (4, 24), (3, 5, 4))


class Maker(Windows):
    """Makes one program. `player` has the builder and the tensors; `steps` is what has been accepted."""

    def __init__(self, seed: int, classes: list[type[Instruction]] = CLASSES) -> None:
        super().__init__(random.Random(seed))
        self.target = get_target(self.pick(["trn1", "trn2", "trn3", "trn3"]))
        self.classes = [cls for cls in classes if self.target.version >= cls.since]
        if self.often():  # few sorts of instructions meet on the same windows more often
            self.classes = self.chance.sample(self.classes, 6)
            self.classes += [cls for cls in classes if cls.mnemonic in OFTEN]
        self.usual = {letter: self.pick(SIZES) for letter in ascii_uppercase}
        self.kinds = [self.pick(ALL), self.pick(ALL[:6]), dtypes.bfloat16]
        self.brief: list[Buffer] = []
        self.steps: list[Any] = []
        self.block = self.steps
        self.player = Player(Builder("fuzz", self.target))
        self.builder = self.player.builder
        self.free: list[Register] = []
        self.depth = 0

    def do(self, step: Any) -> Any:
        """Perform a step and keep it."""
        made = self.player.perform(step)
        self.block.append(step)
        return made

    def call(self, mnemonic: str, **values: Any) -> Any:
        return self.do(Call(mnemonic, values))

    def make(self, size: int) -> Player:
        """The whole program: `size` random instructions between loading and storing all tensors."""
        with self.builder:
            self._arguments()
            self._tiles()
            self.fill(size)
            for buffer in self.pool:
                if buffer.memory.on_chip and buffer not in self.brief:
                    self._down(buffer)
        return self.player

    def _arguments(self) -> None:
        indices = {"i32": dtypes.int32, "u32": dtypes.uint32, "i8": dtypes.int8}
        for name, kind in indices.items():
            given = self.do(Tile(name, (128, 8), kind, hbm, role="argument"))
            tile = self.do(Tile(f"{name}s", (128, 8), kind, sbuf))
            self.call("dma_copy", dst=Access.whole(tile), src=Access.whole(given))
            self.fixed.append(tile)
        for number in range(2):
            shape = self.pick([(40, 50), (128, 64), (300,), (7, 6, 11)])
            self.pool.append(self.do(Tile(f"x{number}", shape, self.pick(ALL), hbm, role="argument")))
        for number in range(2):
            register = self.do(Call("register_alloc", {"x": self.chance.randint(0, LARGEST_INDEX)}, made=NEW))
            self.places.append(register)
            self.free.append(self.do(Call("register_alloc", {"x": number}, made=NEW)))

    def _tiles(self) -> None:
        together = self.often(0.3)
        for number in range(3):
            address = (0, 64 * number + self.pick([0, 4, 32])) if together else None
            self.loaded(f"s{number}", (self.pick([16, 32, 64, 128]), *self.pick(FREE)), sbuf, address)
        for number in range(2):
            self.loaded(f"p{number}", (self.pick([32, 128]), self.pick([32, 64, 128])), psum)

    def loaded(self, label: str, shape: Shape, memory: MemoryRegion, address: Any = None) -> None:
        """A tile with bytes from outside, which joins the shared ones."""
        kinds = [dtypes.float32, dtypes.bfloat16, dtypes.int32] if memory is psum else ALL
        kind = self.pick(kinds) if memory is psum or self.often(0.3) else self.pick(self.kinds)
        tile = self.do(Tile(label, shape, kind, sbuf, address=address))
        given = self.do(Tile(f"{label}_in", shape, kind, hbm, role="argument"))
        self.call("dma_copy", dst=Access.whole(tile), src=Access.whole(given))
        if memory is psum:
            tile, source = self.do(Tile(label, shape, kind, psum)), tile
            self.call("tensor_copy", dst=Access.whole(tile), src=Access.whole(source))
        self.pool.append(tile)

    def _down(self, tile: Buffer) -> None:
        if tile.memory is psum:
            copy = self.do(Tile("copy", tile.shape, tile.dtype, sbuf))
            self.call("tensor_copy", dst=Access.whole(copy), src=Access.whole(tile))
            tile = copy
        result = self.do(Tile("result", tile.shape, tile.dtype, MemoryRegion.shared_hbm, role="result"))
        self.call("dma_copy", dst=Access.whole(result), src=Access.whole(tile))

    def fill(self, size: int) -> None:
        """Append random steps to the current block, some of them in loops."""
        while size > 0:
            size -= 1
            if self.often(0.2):
                self.brief.append(self.temporary())
            if self.depth < 2 and self.often(0.15):
                self._loop(self.chance.randint(1, 3))
            else:
                self._instruction()

    def _loop(self, size: int) -> None:
        outer, tiles, places = self.block, [*self.pool], [*self.places]
        if self.often(0.3):
            condition = self.do(Call("register_alloc", {"x": self.pick([0, 1])}, made=NEW))
            loop = Repeat("while", (condition, 0, 1))
        else:
            stop = self.pick([0, 1, 2, 3, self.pick(self.places)])
            loop = Repeat("for", (self.pick([0, 0, 1]), stop, self.pick([1, 1, 2])))
        self.depth += 1
        for _ in self.player.passes(loop):
            self.block = loop.body
            if loop.kind == "for":
                self.places.append(self.player.registers[loop.counter])
            if self.often():
                self.temporary()
            self.fill(size)
            if loop.kind == "while":
                self.call("register_move", dst=loop.bounds[0], src=0)
        self.depth -= 1
        self.block, self.pool, self.places = outer, tiles, places
        outer.append(loop)

    def temporary(self) -> Buffer:
        """A tile that is not stored at the end; an earlier one is forgotten, so that its memory becomes free."""
        if self.brief and self.often():
            self.pool = [b for b in self.pool if b is not self.brief[-1]]
        tile = self.do(Tile("brief", (self.pick([16, 32]), 24), self.pick(self.kinds), sbuf))
        self.call("memset", dst=Access.whole(tile), value=int(tile.dtype.kind != "packed"))
        self.pool.append(tile)
        return tile

    def _instruction(self) -> None:
        cls = self.pick(self.classes)
        for _ in range(TRIES):
            values = self.values(cls)
            try:
                if values is not None:
                    self.call(cls.mnemonic, **values)
                    return
            except NkiError:
                continue

    def values(self, cls: type[Instruction]) -> dict[str, Any] | None:
        """Values for the parameters of one instruction; `None` if there is none for some."""
        hinted = self.often(0.85)
        tied = (DIMS.get(cls.mnemonic) or declared(cls.mnemonic)) if hinted else {}
        known = ATTRIBUTES.get(cls.mnemonic, {}) if hinted else {}
        letters = sorted({d for operand in cls.operands for d in operand.dims if d.isalpha()})
        usual_sizes = self.often(0.7)
        free = {letter: self.usual[letter] if usual_sizes else self.pick(SIZES) for letter in ascii_uppercase}
        sizes = {**free, **{letter: int(tied[letter]) for letter in letters if letter in tied}}
        usual = self.pick(self.kinds) if self.often(0.7) else self.pick(ALL)
        values: dict[str, Any] = {}
        for name, spec in cls.parameters.items():
            if name in known:
                value = self.pick(known[name])
            elif isinstance(spec, Operand):
                place = PLACES.get((cls.mnemonic, name), ()) if hinted else ()
                wanted = tied.get(name, "")
                number = not isinstance(wanted, str)
                value = wanted if number else self.operand(spec, sizes, usual, dimensions(wanted), place)
            elif isinstance(spec, RegisterOperand):
                value = self.register(spec)
            elif isinstance(spec, Attribute):
                value = value_of(spec, tied[name]) if name in tied else self.attribute(spec)
            else:
                value = self.pick([Engine.unknown, Engine.unknown, *cls.engines])
            if value is REQUIRED:
                return None
            values[name] = value
        return values

    def attribute(self, spec: Attribute) -> Any:
        """A value of the attribute's kind, the default more often than not."""
        if spec.default is not REQUIRED and (spec.name == "name" or self.often(0.7)):
            return spec.default
        options = accepted(spec.kind, WORDS, NUMBERS)
        return self.pick(options) if options else spec.default

    def register(self, spec: RegisterOperand) -> Any:
        if spec.default is not REQUIRED and self.often():
            return spec.default
        if spec.direction == "out":
            return self.pick(self.free)
        return self.pick([0, 1, -5, 2**31 - 1]) if spec.numbers and self.often() else self.pick(self.places)

    def operand(
        self, spec: Operand, sizes: dict[str, int], usual: DType, dims: list[str], place: tuple[str, ...] = ()
    ) -> Any:
        """A window, several, a number, or the default for one operand."""
        if spec.many:
            members = spec.members(self.pick([1, 2, 2, 3]))
            return tuple(self.operand(one, sizes, usual, dims) for one in members)
        if spec.optional and self.often():
            return spec.default
        if spec.nullable and self.often(0.3):
            return None
        if spec.scalar and self.often():
            return self.pick(NUMBERS)
        memories = [m for m in sorted(spec.memories, key=str) if m is not MemoryRegion.shared_hbm]
        memory = MemoryRegion[place[0]] if place else self.pick(memories or [hbm])
        dtype = usual if usual in spec.dtypes and self.often(0.8) else self.pick(sorted(spec.dtypes))
        dtype = as_dtype(place[1]) if len(place) > 1 else dtype
        found = [size_of(word, sizes) or self.pick(SIZES) for word in dims or spec.dims]
        shape = self.shape_of(found)
        if spec.name in INDICES and not spec.is_output and self.often(0.9):
            return self.window(shape, dtype, memory, self.fixed)
        access = self.window(shape, dtype, memory, self.pool + ([] if spec.is_output else self.fixed))
        return self.placed(spec, access) if access is not REQUIRED and self.often(0.25) else access
