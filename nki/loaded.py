"""`nki.load_ir`: a program read from a `.nkir` file, usable wherever a kernel is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nki import errors
from nki.arguments import Arguments, collect
from nki.compiled import Compiled, check_arguments
from nki.errors import Diagnostic
from nki.ir.program import Program
from nki.span import capture
from nki.target import Target, get_target

if TYPE_CHECKING:
    from nki.jit import Options


def load_ir(path: str | os.PathLike[str]) -> LoadedKernel:
    """Read a program from a file. Nothing in the file is executed; `IrSyntaxError` says what is wrong with it."""
    from nki.ir.parser import parse_program

    with open(path, encoding="utf-8") as file:
        text = file.read()
    return LoadedKernel(parse_program(text, os.fspath(path)))


class LoadedKernel:
    """A recorded program as a kernel: it takes arrays of exactly the recorded shapes and dtypes."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.__name__ = program.name
        self.__doc__ = f"Recorded program {program.name} for {program.target.name}."
        self._compiled: dict[bool, Compiled] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._for(None).run(self.bind(args, kwargs).leaves)

    def ir(self, *args: Any, target: str | Target | None = None, **kwargs: Any) -> Program:
        """The program; arguments, if given, are checked against it."""
        self._check_target(target)
        if args or kwargs:
            self.bind(args, kwargs)
        return self._for(None).program

    def check(self, *args: Any, target: str | Target | None = None, **kwargs: Any) -> list[Diagnostic]:
        """Diagnostics of the recorded program."""
        self._check_target(target)
        try:
            return list(self._for(None).program.diagnostics)
        except errors.NkiError as error:
            return [error.diagnostic()]

    def compiled(self, options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Compiled:
        """The program ready to run."""
        self._check_target(options.target)
        if args or kwargs:
            self.bind(args, kwargs)
        return self._for(options.sanitize)

    def run(
        self,
        options: Options,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Sequence[np.ndarray] = (),
    ) -> Any:
        """Run on the caller's tensors. `out`: contiguous arrays for the results, instead of new ones."""
        self._check_target(options.target)
        compiled = self._for(options.sanitize)
        if options.sanitize:
            for found in compiled.program.diagnostics:
                if found.severity == "warning":
                    errors.raise_diagnostic(found)
        return compiled.run(self.bind(args, kwargs).leaves, out)

    def _for(self, sanitize: bool | None) -> Compiled:
        strict = sanitize is not False
        if strict not in self._compiled:
            self._compiled[strict] = Compiled(self.program, strict=strict)
        return self._compiled[strict]

    def _check_target(self, target: str | Target | None) -> None:
        if target is not None and get_target(target) != self.program.target:
            raise errors.TargetError(
                f"{self.__name__} was recorded for {self.program.target.name}",
                found=get_target(target).name,
                allowed=self.program.target.name,
                remedy="stage the kernel again for the other target; a program is made for one generation",
                span=capture(2),
            )

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        names = [buffer.name for buffer in self.program.arguments]
        values = dict(zip(names, args))
        unknown = set(kwargs) - set(names)
        if len(args) > len(names) or unknown or set(values) & set(kwargs):
            raise errors.ArgumentError(
                f"{self.__name__} does not take these arguments",
                found=f"{len(args)} positional arguments and {sorted(kwargs)}",
                allowed=", ".join(names),
                remedy="pass one array per recorded argument",
                span=capture(2),
            )
        values.update(kwargs)
        arguments = collect({name: values[name] for name in names if name in values})
        check_arguments(self.program, arguments.leaves)
        return arguments

    def __repr__(self) -> str:
        return f"<nki program {self.__name__} for {self.program.target.name}>"
