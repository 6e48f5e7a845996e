"""A finding as a record: what `kernel.check` lists. `nki/errors.py` has the exceptions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Diagnostic:
    """One finding of `kernel.check` or of a sanitizer.

    `severity` is `error` (cannot run), `warning` (very likely a fault) or `note` (portability, performance,
    deprecation, or what only the real compiler refuses). `file` and `line` are the innermost user frame.
    """

    code: str
    severity: str
    message: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.severity}[{self.code}]: {self.message}"
