"""Static proof that nothing is read before it is written (semantics rule 47, decision D5).

The addresses are known, so the proof is a walk with one mask per tensor: whole-tensor writes set a flag, partial ones a
mask. Bodies of loops on the device are walked once, in order; a dynamic address counts as written everywhere. Tiles that the user placed over each other also carry, per byte, which tile wrote it
last: reading bytes of one's own that another tile has overwritten since is reported as aliasing.
"""

from __future__ import annotations

from nki import errors
from nki.errors import Diagnostic
from nki.ir.instruction import Instruction
from nki.ir.program import Access, Buffer, Program, flatten
from nki.passes.masks import WrittenMask
from nki.passes.owners import Owners


def check_initialised(program: Program, *, strict: bool = True) -> frozenset[str]:
    """Raise `UninitializedReadError` at the first read of elements that nothing has written.

    With `strict=False` such reads become warnings. Returns the names of the buffers that must be filled with the
    documented poison before the run: those read uninitialised, and results that are not written completely.
    """
    walk = _Walk(program, strict)
    for core, nodes in enumerate(program.cores):
        walk.elsewhere = _written_by_others(program, core)
        for instruction in flatten(nodes):
            walk.step(instruction)
    walk.results()
    return frozenset(walk.poisoned)


def _written_by_others(program: Program, core: int) -> set[str]:
    """Tensors that another core writes: whether it has done so yet is a matter of barriers, not of initialisation."""
    others = (nodes for number, nodes in enumerate(program.cores) if number != core)
    return {access.buffer.name for nodes in others for i in flatten(nodes) for access in i.writes()}


class _Walk:
    """elsewhere: names of tensors that other cores write too."""

    def __init__(self, program: Program, strict: bool) -> None:
        self.program = program
        self.strict = strict
        self.complete = {b.name for b in program.arguments} | {b.name for b in program.buffers if b.data is not None}
        self.elsewhere: set[str] = set()
        self.masks: dict[str, WrittenMask] = {}
        self.poisoned: set[str] = set()
        self.owners = Owners(program.buffers)

    def step(self, instruction: Instruction) -> None:
        for access in instruction.reads():
            if access.buffer.name not in self.complete and access.buffer.name not in self.elsewhere:
                self._read(instruction, access)
            if access.buffer.name in self.owners:
                self._owned(instruction, access)
        for access in instruction.writes():
            if access.buffer.name in self.owners:
                self.owners.wrote(access)
            if access.buffer.name not in self.complete:
                self._write(access)

    def _write(self, access: Access) -> None:
        buffer = access.buffer
        if access.dynamic is not None:
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
        if mask is not None and access.dynamic is not None:
            return
        if mask is not None and mask.view(access).all():
            if mask.all():
                self.complete.add(buffer.name)
            return
        if buffer.name in self.owners and self.owners.written(access):
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
        span = error.span
        found = Diagnostic(error.code, severity, error.explain(), span.file if span else "", span.line if span else 0)
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
    return errors.UninitializedReadError(
        f"{instruction.mnemonic}: `{operand}` reads elements of `{buffer.label or buffer.name}` that nothing has written",
        operand=f"{operand}: {access.describe()}, allocated at {buffer.span}",
        found=f"{region} uninitialised",
        allowed="every element that is read has been written before",
        remedy="load, compute or nisa.memset that part first (sanitize=False fills NaN and goes on)",
        span=instruction.span,
    )

