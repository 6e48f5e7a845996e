"""What belongs to a loop on the device stays in it: tensors made in its body, and its counter.

A tensor of a body is new in every pass and has no content after the last one; neither has the counter a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nki import errors
from nki.ir.control import Loop, Register
from nki.ir.instruction import Instruction
from nki.ir.program import Buffer


def check_scopes(
    instruction: Instruction, loops: list[Loop], counters: Mapping[Register, Loop], core: int
) -> None:
    """Refuse operands that belong to a loop which `instruction`, standing inside `loops`, is not in."""
    for _, access in instruction.pairs:
        if access.buffer.loop is not None:
            check_tensor(access.buffer, loops, core, instruction.mnemonic)
    if not counters or not (instruction.registers or instruction.is_dynamic):
        return
    for window in instruction.index_windows():
        if window.buffer.loop is not None:
            check_tensor(window.buffer, loops, core, instruction.mnemonic)
    for register in instruction.registers_read():
        loop = counters.get(register)
        if loop is not None and loop not in loops:
            raise counter_error(register, loop, instruction.mnemonic)


def check_tensor(buffer: Buffer, loops: list[Loop], core: int, what: str) -> None:
    """Refuse a tensor made in the body of a loop that is not open. Another core's tensors are matched, not judged."""
    loop = buffer.loop
    if loop is None or loop in loops or buffer.core != core:
        return
    name = buffer.label or buffer.name
    raise errors.LoopScopeError(
        f"{what}: `{name}` was made in the body of a loop on the device and is not visible outside of it",
        operand=f"{buffer.describe()}, allocated at {buffer.span}",
        found=f"used outside of the loop at {loop.span}",
        allowed="uses in the body, where the tensor is new in every pass",
        remedy=f"allocate `{name}` before the loop and write it in the body",
    )


def staged_in(loop: Loop, nodes: Iterable[Instruction]) -> list[object]:
    """What one pass of a loop staged directly in its body, in a form that is the same for equal passes: tensors of the
    body itself, which are new in every pass, are left out."""
    found: list[object] = []
    for instruction in nodes:
        if instruction.loops and instruction.loops[-1] is loop:
            windows = [
                (access.offset, access.strides, access.buffer.name if access.buffer.loop is not loop else "")
                for _, access in instruction.pairs
            ]
            found.append((instruction.asked, windows))
    return found


def counter_error(register: Register, loop: Loop, what: str) -> errors.LoopScopeError:
    """The error for a counter that is read where its loop does not run."""
    return errors.LoopScopeError(
        f"{what}: `{register.name}` counts a loop on the device and has no value outside of it",
        found=f"used outside of the loop at {loop.span}",
        allowed="uses in the body of that loop",
        remedy="iterate over the loop directly, and copy the counter with nisa.register_move to keep a value",
    )
