"""The program being staged: `nki.language` and `nki.isa` append to it without knowing who drives it.

One builder is current per thread while a kernel runs under CPython with symbolic tiles. `on_append` is set in eager
mode, where every instruction is executed as soon as it is staged.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from nki import errors
from nki.dtypes import DType
from nki.enums import MemoryRegion
from nki.errors import Diagnostic
from nki.ir.arguments import bind
from nki.ir.control import Loop, Node, Register
from nki.ir.groups import AccumulationGroups
from nki.ir.instruction import Instruction
from nki.ir.program import Access, Buffer, Program, Shape
from nki.ir.scopes import check_scopes
from nki.ir.verify import verify
from nki.span import Span, capture
from nki.target import Target


class _Current(threading.local):
    builder: Builder | None = None


_current = _Current()


class Builder:
    """Collects buffers and instructions of one program on one core.

    grid: number of cores the kernel was launched on, `None` without brackets.
    name_of_tile: the user's variable that receives the tile being allocated, if the front end can tell.
    current_pass: the values of the host's loop variables at the call being staged, "i=0", if the front end can tell.
    call: what an inner kernel's function must pass before it is called (recorded and rewritten by the front end).
    read_file: told of each file whose content becomes part of the program.
    block: the list instructions are appended to, a core's or the body of the innermost of `loops`.
    refuses_loops: the construct inside which loops on the device are illegal, while it is open.
    counters: the loops of all counters. fault: a mistake that could not be raised where it was found.
    schedule: explicit orders, (consumer, producers) by name.
    on_append, on_buffer, read_values, registers: the machine of eager mode, where loops are run by Python and leave no
    node: their instructions are staged in every pass.
    """

    def __init__(self, name: str, target: Target, *, grid: int | None = None, core: int = 0) -> None:
        self.program = Program(name, target)
        self.target = target
        self.grid = grid
        self.core = core
        self.groups = AccumulationGroups()
        self.on_append: Callable[[Instruction], None] | None = None
        self.on_buffer: Callable[[Buffer], None] | None = None
        self.read_values: Callable[[Access], np.ndarray] | None = None
        self.registers: Callable[[Register], np.ndarray] | None = None
        self.refuses_loops: str | None = None
        self.fault: errors.NkiError | None = None
        self.schedule: tuple[tuple[str, tuple[str, ...]], ...] = ()
        self.call: Callable[[Any], Any] | None = None
        self.read_file: Callable[[str], None] | None = None
        self.current_pass: Callable[[], tuple[str, ...]] | None = None
        self.name_of_tile: Callable[[], str | None] | None = None
        self.block: list[Node] = self.program.cores[0]
        self.loops: list[Loop] = []
        self.counters: dict[Register, Loop] = {}
        self._shared: list[Buffer] = []
        self._shared_left: list[Buffer] = []
        self._names: set[str] = set()
        self._counter: dict[str, int] = {}
        self._seen_warnings: set[tuple[str, str, Span]] = set()

    def __enter__(self) -> Builder:
        self._outer = _current.builder
        _current.builder = self
        return self

    def __exit__(self, *_: object) -> None:
        _current.builder = self._outer

    def begin_core(self, core: int) -> None:
        """What follows is staged for another core: its own instructions, tiles and registers; tensors of shared HBM are
        those of the first core, matched in the order in which they are made."""
        self.core = core
        while len(self.program.cores) <= core:
            self.program.cores.append([])
        self.block = self.program.cores[core]
        self.groups = AccumulationGroups()
        self._shared_left = list(self._shared)

    def _shared_tensor(self, shape: Shape, dtype: DType, label: str) -> Buffer:
        """The next shared tensor of the first core, which another core declares again."""
        first = self._shared_left.pop(0) if self._shared_left else None
        if first is None or (first.shape, first.dtype, first.label) != (shape, dtype, label):
            raise errors.KernelError(
                f"core {self.core} makes a tensor in shared HBM that core 0 does not make at this point",
                found=f"`{label}` {list(shape)} {dtype}" if label else f"{list(shape)} {dtype}",
                allowed=first.describe() if first is not None else "no further tensor in shared HBM",
                remedy="allocate the same shared tensors in the same order on every core",
                span=capture(3),
            )
        return first

    def buffer(
        self,
        shape: Shape,
        dtype: DType,
        memory: MemoryRegion,
        *,
        label: str = "",
        role: str = "internal",
        address: tuple[int, int] | None = None,
        data: np.ndarray | None = None,
        span: Span | None = None,
    ) -> Buffer:
        """Declare storage; its name in the program is made from `label` and is unique. `span`: default the caller."""
        shared = memory is MemoryRegion.shared_hbm and role == "internal"
        label = label or (self.name_of_tile() if self.name_of_tile else None) or ""
        if shared and self.core:
            return self._shared_tensor(shape, dtype, label)
        buffer = Buffer(
            self._unique(label or memory.value),
            shape,
            dtype,
            memory,
            role=role,
            address=address,
            label=label,
            span=span or capture(2),
            core=self.core,
            data=data,
            loop=self.loops[-1] if self.loops else None,
        )
        if address is not None:
            self.program.flags.add("fixed_order")
        self.program.buffers.append(buffer)
        if shared:
            self._shared.append(buffer)
        if self.on_buffer is not None:
            self.on_buffer(buffer)
        return buffer

    def register(self, label: str = "", *, frozen: bool = False) -> Register:
        """Declare a register; its name in the program is unique."""
        label = label or (self.name_of_tile() if self.name_of_tile else None) or "r"
        register = Register(self._unique(label), frozen=frozen, span=capture(2))
        self.program.registers.append(register)
        return register

    @contextmanager
    def loop(self, loop: Loop) -> Iterator[Loop]:
        """Everything staged inside the block belongs to the body of `loop`, a new node of the program (not in eager
        mode, where it belongs to one of the passes)."""
        if self.refuses_loops is not None:
            raise errors.KernelError(
                f"a loop on the device cannot stand inside {self.refuses_loops}",
                found=f"a {loop.kind} loop",
                allowed="loops that Python unrolls (range, nl.static_range)",
                remedy="move the loop outside, or give it bounds known while staging",
                span=loop.span,
            )
        outer = self.block
        if self.registers is None:
            outer.append(loop)
            self.block = loop.body
        self.loops.append(loop)
        if loop.counter is not None:
            self.counters[loop.counter] = loop
        try:
            yield loop
        finally:
            self.block = outer
            self.loops.pop()

    def _unique(self, label: str) -> str:
        stem = "".join(c if c.isalnum() or c == "_" else "_" for c in label) or "t"
        if stem[0].isdigit():
            stem = "t" + stem
        name = stem
        while name in self._names:
            self._counter[stem] = self._counter.get(stem, 0) + 1
            name = f"{stem}.{self._counter[stem]}"
        self._names.add(name)
        return name

    def append(self, instruction: Instruction) -> None:
        """Verify an instruction and add it to the program; nothing is added if it is refused."""
        warnings = verify(instruction, self.target)
        check_scopes(instruction, self.loops, self.counters, self.core)
        if self.loops:
            instruction.loops = tuple(self.loops)
            if self.registers is not None:
                instruction.asked = instruction.current_key()
        instruction.resolve(self)
        if self.groups.active and not instruction.accumulates:
            for access in instruction.writes():
                self.groups.ended(access)
        if self.loops:
            self._unsettle(instruction)
        self.block.append(instruction)
        for severity, text in warnings:
            self.warn(instruction.mnemonic, severity, text, instruction.span)
        if self.on_append is not None:
            self.on_append(instruction)

    def is_settled(self, buffer: Buffer) -> bool:
        """Whether staging knows which elements of a tensor have been written by accumulating instructions: not for one
        from outside a loop, where the first pass differs from the others, nor after a loop that may not have run, nor
        after a write to a place that the device decided."""
        outside = self.loops and buffer.loop is not self.loops[-1]
        return self.groups.is_settled(buffer) and (self.registers is not None or not outside)

    def _unsettle(self, instruction: Instruction) -> None:
        for access in instruction.writes() if self.registers is None else ():
            if access.buffer.memory is MemoryRegion.psum and access.buffer.loop is not self.loops[-1]:
                self.groups.unsettle(access.buffer)

    def warn(self, code: str, severity: str, text: str, span: Span) -> None:
        """Record a warning or a note, once per place."""
        key = (code, text, span)
        if key not in self._seen_warnings:
            self._seen_warnings.add(key)
            self.program.diagnostics.append(Diagnostic(code, severity, text, span.file, span.line))


def current() -> Builder | None:
    """The builder of the kernel being staged in this thread, if any."""
    return _current.builder


def require(what: str) -> Builder:
    """The current builder; an error naming `what` if no kernel is being staged."""
    builder = _current.builder
    if builder is None:
        raise errors.OutsideKernelError(
            f"{what} was called outside a kernel",
            found="no kernel is being staged",
            allowed="inside a function decorated with @nki.jit",
            remedy="move the call into a kernel and call the kernel",
            span=capture(2),
        )
    return builder


def issue(cls: type[Instruction], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Instruction:
    """What calling `nisa.<mnemonic>(...)` does: bind, verify, append. Errors are placed at the caller's line."""
    builder = _current.builder or require(f"{cls.namespace}.{cls.mnemonic}")
    span = capture(2)
    try:
        instruction = cls(bind(cls, args, kwargs), span)
        if builder.current_pass is not None:
            instruction.passes = builder.current_pass()
        builder.append(instruction)
    except errors.NkiError as error:
        error.at(span)
        raise
    return instruction
