"""The body of a core: instructions and loops, and what each may see from its place.

An instruction may use the tiles and counters of its own block and of those around it (`scopes.py`), wait for earlier
instructions of these blocks, and write every register but the counters of loops.
"""

from __future__ import annotations

from collections.abc import Sequence

from nki import errors
from nki.enums import engine as Engine
from nki.ir.bounds import check_window
from nki.ir.control import Loop, Node, Register
from nki.ir.instruction import Instruction
from nki.ir.operands import Operand
from nki.ir.program import Access
from nki.ir.scopes import check_scopes, counter_error

_LOWEST, _HIGHEST = -(1 << 31), (1 << 31) - 1
"""What a register holds."""


class Blocks:
    """A walk through the blocks of one core, from the outermost in.

    declared: ids of the program's buffers; registers: the program's registers by name.
    """

    def __init__(self, declared: set[int], registers: dict[str, Register], core: int) -> None:
        self.declared = declared
        self.registers = registers
        self.core = core
        self.around: list[Loop] = []
        self.counters: dict[Register, Loop] = {}

    def check(self, nodes: Sequence[Node], earlier: set[int]) -> None:
        """Check a block; `earlier` are the ids of the instructions before it that are not inside other loops."""
        earlier = set(earlier)
        for node in nodes:
            try:
                if isinstance(node, Loop):
                    self._loop(node, earlier)
                else:
                    self._instruction(node, earlier)
                    earlier.add(id(node))
            except errors.NkiError as error:
                raise error.at(node.span) from None

    def _loop(self, loop: Loop, earlier: set[int]) -> None:
        check_loop(loop, self.registers, self.counters, self.around)
        if loop.counter is not None:
            self.counters[loop.counter] = loop
        self.around.append(loop)
        self.check(loop.body, earlier)
        self.around.pop()

    def _instruction(self, instruction: Instruction, earlier: set[int]) -> None:
        for operand, access in instruction.accesses():
            self._operand(instruction, operand, access)
        check_registers(instruction, self.registers)
        check_scopes(instruction, self.around, self.counters, self.core)
        if instruction.engine is Engine.unknown or instruction.engine not in instruction.engines:
            raise errors.EngineError(
                f"{instruction.mnemonic}: the program has no engine for this instruction",
                operand="engine",
                found=str(instruction.engine),
                allowed=", ".join(engine.name for engine in instruction.engines),
                remedy="verify the instruction first",
            )
        for producer in instruction.after:
            if id(producer) not in earlier:
                raise errors.KernelError(
                    f"{instruction.mnemonic} waits for {producer.mnemonic}, which does not come before it",
                    allowed="an earlier instruction of the same core, in the same block or in one around it",
                    remedy="call depends_on on the later of the two, outside of other loops",
                )

    def _operand(self, instruction: Instruction, operand: Operand, access: Access) -> None:
        what = f"{instruction.mnemonic}: `{operand.name}` "
        index = access.dynamic.index if access.dynamic is not None else None
        for window in (access, index):
            if not isinstance(window, Access):
                continue
            if id(window.buffer) not in self.declared:
                raise errors.KernelError(
                    f"{what}uses %{window.buffer.name}, which is not declared",
                    allowed="a buffer of this program",
                    remedy="add it to the buffers of the program",
                )
        check_window(access, what)


def check_registers(instruction: Instruction, registers: dict[str, Register]) -> None:
    """The registers of an instruction are declared, and none that it writes is the counter of a loop."""
    name = instruction.mnemonic
    for register in instruction.registers_read():
        if register.name not in registers:
            raise _undeclared(f"{name} reads ${register.name}")
    for register in instruction.registers_written():
        if register.name not in registers:
            raise _undeclared(f"{name} writes ${register.name}")
        if registers[register.name].frozen:
            raise errors.FrozenRegisterError(
                f"{name} writes ${register.name}, the counter of a loop",
                found=f"${register.name}",
                allowed="registers that are not frozen",
                remedy="copy the counter into another register and write that",
            )


def check_loop(
    loop: Loop, registers: dict[str, Register], counters: dict[Register, Loop], around: Sequence[Loop]
) -> None:
    """A loop counts a frozen register of its own by positive steps, or tests a register.

    counters: those of the loops before it and around it.
    """
    own = loop.counter if loop.kind == "for" else loop.condition
    if loop.kind not in ("for", "while") or own is None:
        raise errors.KernelError(
            f"a {loop.kind} loop without {'a counter' if loop.kind == 'for' else 'a condition'}",
            allowed="`for` with a counter, `while` with a condition",
            remedy="give the loop its register",
        )
    for register in (own, *loop.registers()):
        if register.name not in registers:
            raise _undeclared(f"a loop uses ${register.name}")
    for register in loop.registers():
        counted = counters.get(register)
        if counted is not None and counted not in around:
            raise counter_error(register, counted, f"a {loop.kind} loop")
    if loop.kind == "for":
        _check_count(loop, registers[own.name], own in counters)


def _check_count(loop: Loop, own: Register, counts_another: bool) -> None:
    if not own.frozen or counts_another:
        raise errors.KernelError(
            f"${own.name} cannot count this loop",
            found="it counts another loop" if own.frozen else f"${own.name} is not frozen",
            allowed="a frozen register of its own",
            remedy="declare a frozen register for each loop",
        )
    bounds = [bound for bound in (loop.start, loop.stop) if not isinstance(bound, Register)]
    whole = all(type(value) is int and _LOWEST <= value <= _HIGHEST for value in (*bounds, loop.step))
    if not whole or loop.step < 1:
        raise errors.KernelError(
            f"${own.name} cannot count like this",
            found=f"range({', '.join(map(_shown, (loop.start, loop.stop, loop.step)))})",
            allowed=f"registers or integers from {_LOWEST} to {_HIGHEST}, and a positive step",
            remedy="count upwards, and turn the index round in the body",
        )


def _shown(bound: int | Register) -> str:
    return f"${bound.name}" if isinstance(bound, Register) else str(bound)


def _undeclared(what: str) -> errors.KernelError:
    return errors.KernelError(
        f"{what}, which is not declared",
        allowed="a register of this program",
        remedy="add it to the registers of the program",
    )
