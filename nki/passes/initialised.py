"""Static proof that nothing is read before it is written (semantics rule 47, decision D5).

The addresses are known, so the proof is a walk with one mask per tensor: whole-tensor writes set a flag, partial ones
a mask. Bodies of loops on the device are walked once, in order; a dynamic address counts as written everywhere. Tiles
that the user placed over each other also carry, per byte, which tile wrote it last: reading bytes of one's own that
another tile has surely overwritten since is reported as aliasing.
"""

from __future__ import annotations

from nki import errors
from nki.ir.control import Loop, Node, Register, steps
from nki.ir.instruction import Instruction
from nki.ir.program import Access, Buffer, Program, flatten
from nki.passes.masks import WrittenMask
from nki.passes.owners import Owners
from nki.span import Span


def check_initialised(program: Program, *, strict: bool = True) -> frozenset[str]:
    """Raise `UninitializedReadError` at the first read of elements that nothing has written.

    With `strict=False` such reads become warnings. Returns the names of the buffers that must be filled with the
    documented poison before the run: those read uninitialised, results that are not written completely, and those of
    which only the run tells what is written, or which part of them is read (by dynamic addresses, or in loops that may
    not run).
    """
    walk = _Walk(program, strict)
    for core, nodes in enumerate(program.cores):
        walk.elsewhere = _written_by_others(program, core)
        walk.nodes(nodes)
    walk.results()
    return frozenset(walk.poisoned | walk.undecided)


def _written_by_others(program: Program, core: int) -> set[str]:
    """Tensors that another core writes: whether it has done so yet is a matter of barriers, not of initialisation."""
    others = (nodes for number, nodes in enumerate(program.cores) if number != core)
    return {access.buffer.name for nodes in others for i in flatten(nodes) for access in i.writes()}


class _Walk:
    """elsewhere: names of tensors that other cores write too. around: the loops on the device being walked, from the
    outermost in. undecided: tensors that count as written though only the run tells."""

    def __init__(self, program: Program, strict: bool) -> None:
        self.program = program
        self.strict = strict
        self.complete = {b.name for b in program.arguments} | {
            b.name for b in program.buffers if b.data is not None
        }
        self.elsewhere: set[str] = set()
        self.masks: dict[str, WrittenMask] = {}
        self.poisoned: set[str] = set()
        self.undecided: set[str] = set()
        self.around: list[Loop] = []
        self.registers: set[Register] = set()
        self.owners = Owners(program.buffers)

    def nodes(self, nodes: list[Node]) -> None:
        """Walk a list of nodes; bodies that never run are left out."""
        for node in nodes:
            if not isinstance(node, Loop):
                self.step(node)
            elif steps(node) != 0:
                self._registers(node.registers(), "a loop on the device", node.span)
                self.registers.update(() if node.counter is None else (node.counter,))
                self.around.append(node)
                self.nodes(node.body)
                self.around.pop()

    def _registers(self, read: list[Register], what: str, span: Span) -> None:
        for register in read:
            if register in self.registers:
                continue
            self.registers.add(register)
            error = errors.UninitializedReadError(
                f"{what} reads the register `{register.name}`, which nothing has written",
                operand=f"{register.name}, allocated at {register.span}",
                found="a register without a value",
                allowed="registers that have been written before",
                remedy="give it a value: nisa.register_alloc(0), nisa.register_move or nisa.register_load",
                span=span,
            )
            if self.strict:
                raise error
            self._report(error, "warning")

    def _may_not_run(self, buffer: Buffer) -> bool:
        """Whether a tensor is written inside of a loop around which it lives and which may run no pass."""
        inside = self.around.index(buffer.loop) + 1 if buffer.loop in self.around else 0
        return any(steps(loop) is None for loop in self.around[inside:])

    def step(self, instruction: Instruction) -> None:
        if instruction.registers or instruction.is_dynamic:
            self.registers.update(loop.counter for loop in instruction.loops if loop.counter is not None)
            self._registers(instruction.registers_read(), instruction.mnemonic, instruction.span)
            self.registers.update(instruction.registers_written())
        for access in instruction.reads():
            if access.buffer.name in self.elsewhere and access.buffer.name not in self.complete:
                self.undecided.add(access.buffer.name)
            elif access.buffer.name not in self.complete:
                self._read(instruction, access)
            if access.buffer.name in self.owners:
                self._owned(instruction, access)
        for access in instruction.writes():
            if access.buffer.name in self.owners:
                self.owners.wrote(access, instruction.written_in_part(access))
            if access.buffer.name not in self.complete:
                self._write(access, instruction.written_in_part(access))

    def _write(self, access: Access, in_part: bool) -> None:
        buffer = access.buffer
        if in_part or (self.around and self._may_not_run(buffer)):
            self.undecided.add(buffer.name)
        if in_part:
            # Where it lands is known only while running: such a tensor counts as written from here on.
            self.complete.add(buffer.name)
            return
        if access.offset == 0 and access.size * access.dtype.itemsize == buffer.nbytes and access.dense():
            self.complete.add(buffer.name)
            self.masks.pop(buffer.name, None)
            return
        mask = self.masks.get(buffer.name)
        if mask is None:
            mask = self.masks[buffer.name] = WrittenMask(buffer)
        mask.view(access)[...] = True

    def _read(self, instruction: Instruction, access: Access) -> None:
        buffer = access.buffer
        mask = self.masks.get(buffer.name)
        reached = access if access.dynamic is None else access.reachable()
        if mask is not None and mask.view(reached).all():
            if mask.all():
                self.complete.add(buffer.name)
            return
        beneath = buffer.name in self.owners and self.owners.written(access)
        if access.dynamic is not None and (mask is not None or beneath):
            # Some place may be written; at another, the run must see the poison and not what a tile before left there.
            self.undecided.add(buffer.name)
            return
        if beneath:
            return
        operand = _operand(instruction, access)
        error = _uninitialised(instruction, operand, access, mask)
        if self.strict:
            raise error
        if buffer.name not in self.poisoned:
            self.poisoned.add(buffer.name)
            self._report(error, "warning")

    def _owned(self, instruction: Instruction, access: Access) -> None:
        other = self.owners.overwritten_by(access)
        if other is None:
            return
        name = access.buffer.label or access.buffer.name
        error = errors.AliasingError(
            f"{instruction.mnemonic}: `{name}` and `{other.label or other.name}` overlap, and `{name}` is read after "
            f"`{other.label or other.name}` has overwritten part of it",
            operand=access.describe(),
            found=f"`{name}` at {access.buffer.address}, `{other.label or other.name}` at {other.address}",
            allowed="addresses of tiles that are needed at the same time must not overlap",
            remedy="move one of the two tiles (address= counts partition and bytes), or leave address= out",
            span=instruction.span,
        )
        self._report(error, "warning")

    def _report(self, error: errors.NkiError, severity: str) -> None:
        found = error.diagnostic(severity)
        if found not in self.program.diagnostics:
            self.program.diagnostics.append(found)

    def results(self) -> None:
        """A returned tensor with elements nobody wrote is reported at the `return`."""
        for buffer in self.program.results:
            if buffer.name in self.complete:
                continue
            mask = self.masks.get(buffer.name)
            if mask is not None and mask.all():
                continue
            self.poisoned.add(buffer.name)
            region = mask.missing_region() if mask is not None else "all elements"
            error = errors.UnwrittenOutputError(
                f"the returned tensor {buffer.describe()} is not written completely: {region} never written",
                operand=buffer.label or buffer.name,
                found=f"{region} never written",
                allowed="every element of a returned tensor is written",
                remedy="store to the missing part (a tail tile that the loop leaves out?)",
                span=self.program.span,
            )
            self._report(error, "warning")


def _operand(instruction: Instruction, access: Access) -> str:
    """The operand that a window belongs to; an instruction may read only a part of one."""
    whole = [operand.name for operand, window in instruction.accesses() if window is access]
    parts = [operand.name for operand, window in instruction.accesses() if window.buffer is access.buffer]
    return (whole or parts)[0]


def _uninitialised(
    instruction: Instruction, operand: str, access: Access, mask: WrittenMask | None
) -> errors.UninitializedReadError:
    buffer: Buffer = access.buffer
    region = "all of it" if mask is None else mask.missing_region(access)
    name = buffer.label or buffer.name
    return errors.UninitializedReadError(
        f"{instruction.mnemonic}: `{operand}` reads elements of `{name}` that nothing has written",
        operand=f"{operand}: {access.describe()}, allocated at {buffer.span}",
        found=f"{region} uninitialised",
        allowed="every element that is read has been written before",
        remedy="load, compute or nisa.memset that part first (sanitize=False fills NaN and goes on)",
        span=instruction.span,
    )
