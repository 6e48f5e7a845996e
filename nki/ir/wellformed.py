"""Checks of a whole program: what no single instruction can see of itself.

Names are unique, addresses lie inside their memory, results can be returned; every operand's buffer is declared and
holds the window (`bounds.py`), and instructions and loops see what they use (`blocks.py`). `verify.py` checks the
instructions one by one; capacity, initialisation and aliasing are the business of `nki/passes`.
"""

from __future__ import annotations

from nki import errors
from nki.enums import MemoryRegion
from nki.ir.blocks import Blocks
from nki.ir.control import Register
from nki.ir.program import Buffer, Program
from nki.span import Span
from nki.target import Target

ROLES = ("argument", "internal", "constant")
RESULT_FORMS = ("none", "one", "tuple")


def check_program(program: Program) -> None:
    """Raise the first fault of a program, placed where the user wrote the part at fault."""
    declared: set[int] = set()
    names: set[str] = set()
    for buffer in program.buffers:
        if buffer.name in names:
            message = f"two buffers are called %{buffer.name}"
            raise _fault(message, buffer.span, "one name for each buffer", "rename one of them")
        names.add(buffer.name)
        declared.add(id(buffer))
        try:
            check_buffer(buffer, program.target)
        except errors.NkiError as error:
            raise error.at(buffer.span) from None
    _check_signature(program, declared)
    registers = _registers(program)
    for core, nodes in enumerate(program.cores):
        Blocks(declared, registers, core).check(nodes, set())


def _registers(program: Program) -> dict[str, Register]:
    found: dict[str, Register] = {}
    for register in program.registers:
        if register.name in found:
            message = f"two registers are called ${register.name}"
            raise _fault(message, register.span, "one name for each register", "rename one of them")
        found[register.name] = register
    return found


def check_buffer(buffer: Buffer, target: Target) -> None:
    """A buffer has a real shape, fits into its memory at its address, and holds its data if it is a constant."""
    if not buffer.shape or min(buffer.shape) < 1:
        raise errors.ShapeError(
            f"%{buffer.name} has the shape {list(buffer.shape)}",
            operand=buffer.describe(),
            found=list(buffer.shape),
            allowed="at least one dimension, all sizes at least 1",
            remedy="give every dimension a size of at least 1",
        )
    if buffer.role not in ROLES:
        message = f"%{buffer.name} has the unknown role {buffer.role!r}"
        raise _fault(message, None, ", ".join(ROLES), "use one of these roles")
    if buffer.memory.on_chip:
        _check_place(buffer, target)
    elif buffer.nbytes > target.hbm_chip_bytes:
        raise errors.CapacityError(
            f"%{buffer.name} is larger than the device memory",
            operand=buffer.describe(),
            found=f"{buffer.nbytes} bytes",
            allowed=f"at most {target.hbm_chip_bytes} bytes on {target.name}",
            remedy="split the tensor",
        )
    data = buffer.data
    if (data is not None) != (buffer.role == "constant"):
        message = f"%{buffer.name} {'has data but is no constant' if data is not None else 'has no data'}"
        raise _fault(message, None, "data for constants, and for nothing else", "give the role with the data")
    if data is not None and (data.shape != buffer.shape or data.dtype.itemsize != buffer.dtype.itemsize):
        raise errors.ShapeError(
            f"the data of %{buffer.name} do not fit its declaration",
            operand=buffer.describe(),
            found=f"{list(data.shape)} of {data.dtype}",
            allowed=f"{list(buffer.shape)} of {buffer.dtype}",
            remedy="declare the buffer with the shape and dtype of its data",
        )


def _check_place(buffer: Buffer, target: Target) -> None:
    sbuf = buffer.memory is MemoryRegion.sbuf
    row = target.sbuf_partition_bytes if sbuf else target.psum_partition_bytes
    partition, byte = buffer.address or (0, 0)
    if buffer.shape[0] > target.pmax or partition < 0 or partition + buffer.shape[0] > target.pmax:
        raise errors.PartitionLimitError(
            f"%{buffer.name} takes partitions {partition} to {partition + buffer.shape[0] - 1}",
            operand=buffer.describe(),
            found=f"{buffer.shape[0]} partitions from {partition} on",
            allowed=f"partitions 0 to {target.pmax - 1} on {target.name}",
            remedy="make dimension 0 smaller or move the tile",
        )
    if byte < 0 or byte + buffer.partition_bytes > row:
        raise errors.CapacityError(
            f"%{buffer.name} leaves its partitions in {buffer.memory}",
            operand=buffer.describe(),
            found=f"{buffer.partition_bytes} bytes of each partition from byte {byte} on",
            allowed=f"{row} bytes on {target.name}",
            remedy="make the tile smaller or move it",
        )


def _check_signature(program: Program, declared: set[int]) -> None:
    roles = [buffer for buffer in program.buffers if buffer.role == "argument"]
    if list(map(id, roles)) != list(map(id, program.arguments)):
        found = ", ".join(f"%{buffer.name}" for buffer in roles)
        raise _fault(
            "the arguments are not the buffers with the role `argument`",
            program.span,
            f"{found or 'no argument'}, in the order of declaration",
            "list all of them, in this order",
        )
    count = {"none": 0, "one": 1}.get(program.result_form, len(program.results))
    if program.result_form not in RESULT_FORMS or len(program.results) != count:
        raise errors.ReturnError(
            f"{len(program.results)} results in the form {program.result_form!r}",
            allowed="`none` without results, `one` with one result, or `tuple`",
            remedy="make the form and the number of results agree",
            span=program.span,
        )
    for buffer in program.results:
        check_result(buffer, id(buffer) in declared, program.span)


def check_result(buffer: Buffer, declared: bool = True, span: Span | None = None) -> None:
    """A result is a declared buffer in shared HBM that is not allocated in a loop, or an argument."""
    shared = buffer.memory is MemoryRegion.shared_hbm
    if declared and (buffer.role == "argument" or (shared and buffer.loop is None)):
        return
    found = f"a buffer in {buffer.memory}" if declared else "a buffer that is not declared"
    in_loop = buffer.loop is not None
    raise errors.ReturnError(
        f"%{buffer.name} cannot be a result",
        operand=buffer.describe(),
        found=f"{found}, allocated in a loop" if in_loop else found,
        allowed="an argument, or a buffer in shared_hbm" + (" from outside of loops" if in_loop else ""),
        remedy="allocate it with buffer=nl.shared_hbm" + (", before the loop" if in_loop else ""),
        span=span,
    )


def _fault(message: str, span: Span | None, allowed: str, remedy: str) -> errors.KernelError:
    return errors.KernelError(message, allowed=allowed, remedy=remedy, span=span)
