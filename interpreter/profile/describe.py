"""Instructions in words: what a tooltip, a trace event or a step of the critical path says about one of them."""

from __future__ import annotations

from typing import Any

from interpreter.profile.reading import Reading
from interpreter.profile.remarks import Places
from nki.ir.instruction import Instruction
from nki.ir.operands import REQUIRED

PLAIN_PHASES = frozenset({"", "compute", "dma", "transfer"})
"""Phases that say nothing beyond the instruction's name."""


class Describer:
    """Texts of the instructions of one program; equal ones are made once."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self.places = Places(reading)
        self._texts: dict[object, dict[str, str]] = {}

    def head(self, number: int, kind: str = "") -> str:
        """The mnemonic and, where it has several, the phase."""
        mnemonic = self._reading.mnemonic(number)
        return mnemonic if kind in PLAIN_PHASES else f"{mnemonic} · {kind.replace('_', ' ')}"

    def operands(self, number: int) -> dict[str, str]:
        """Each operand and each attribute that was given, by name."""
        instruction = self._reading.instructions[number]
        given = _attributes(instruction)
        accesses = [(operand.name, access) for operand, access in instruction.accesses()]
        key = (*accesses, *given.items())
        if key not in self._texts:
            self._texts[key] = {**{name: access.describe() for name, access in accesses}, **given}
        return self._texts[key]

    def text(self, number: int) -> str:
        """The operands, one a line."""
        passes = self._reading.instructions[number].passes
        lines = [f"loops: {', '.join(passes)}"] if passes else []
        return "\n".join(lines + [f"{name}: {value}" for name, value in self.operands(number).items()])

    def arguments(self, number: int) -> dict[str, Any]:
        """What a trace event says besides its times."""
        about: dict[str, Any] = {"instruction": number, "line": self.places.of(number)}
        passes = self._reading.instructions[number].passes
        if passes:
            about["loops"] = ", ".join(passes)
        return {**about, **self.operands(number)}

    def cause(self, number: int) -> dict[str, Any]:
        """The instruction that a wait is for."""
        if number < 0:
            return {}
        return {"because_of": number, "mnemonic": self.head(number), "line": self.places.of(number)}

    def cause_text(self, number: int) -> str:
        """The same in words: the mnemonic and its place."""
        return f"{self.head(number)}{self.places.at(number)}" if number >= 0 else ""


def _attributes(instruction: Instruction) -> dict[str, str]:
    values = instruction.__dict__
    found = {}
    for operand in instruction.operands:
        value = values.get(operand.name)
        if isinstance(value, (int, float)):
            found[operand.name] = repr(value)
    for attribute in instruction.attributes:
        value = values.get(attribute.name)
        if value is not None and (attribute.default is REQUIRED or value != attribute.default):
            found[attribute.name] = attribute.kind.show(value)
    return found
