"""`python -m tools.official_examples CHECKOUT`: run the kernels of the official documentation.

CHECKOUT is a copy of the public aws-neuron-sdk repository. Taken are the kernels in the Python blocks of the API's
docstrings and of the guides, and in the files which the guides include; the library's pages describe another package
and are left out. Each kernel is run on made-up arguments (`official_arguments.py`). Nothing of the documentation is
kept. `--json` prints records, `--write` renews docs/official_examples.md.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from inspect import Parameter, isfunction
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from nki.errors import UserAssertionError
from nki.jit import Kernel
from tools.official_arguments import ARGUMENTS, CHANGES, GUESSES, NO_PYTHON, REASONS, Call, Tensor
from tools.official_blocks import Block, blocks
from tools.pages import ROOT, cell, write

PAGE = ROOT / "docs" / "official_examples.md"
TARGETS = ("trn2", "trn3")
OMITTED = "parts of the kernel are left out"


@dataclass(frozen=True)
class Outcome:
    """What became of one kernel. status: ok, fragment or refused.

    detail: the target it ran on, or why it did not. changed: with which small change it runs, and where.
    """

    page: str
    line: int
    function: str
    status: str
    detail: str
    changed: str = ""

    @property
    def reason(self) -> str:
        """Our own words on a refusal, where there are any."""
        start, text = REASONS.get(f"{Path(self.page).stem}:{self.function}", ("", ""))
        return text if self.detail.startswith(start) else ""


def outcomes(block: Block) -> list[Outcome]:
    """Run the kernels of one block; those that are refused once more after each of the small changes."""
    found = list(_outcomes(block))
    for pattern, replacement, name in CHANGES:
        text = re.sub(pattern, replacement, block.text)
        if text != block.text and any(each.status == "refused" for each in found):
            again = list(_outcomes(replace(block, text=text)))
            found = [
                replace(old, changed=f"{name} ({new.detail})")
                if old.status == "refused" and new.status == "ok"
                else old
                for old, new in zip(found, again)
            ]
    return found


def _outcomes(block: Block) -> Iterator[Outcome]:
    try:
        tree = ast.parse(block.text)
    except SyntaxError:
        for name in re.findall(r"nki\.jit(?:\(\))?\s+def (\w+)", block.text):
            yield Outcome(block.page, block.line, name, "fragment", NO_PYTHON)
        return
    if not any(_is_kernel(statement) for statement in tree.body):
        return
    with tempfile.TemporaryDirectory() as folder, _imports_from(block.folder):
        path = Path(folder) / "example.py"
        path.write_text(block.text, encoding="utf-8")
        for line, name, found in _kernels(tree, str(path)):
            result = _run(found, name, block) if isinstance(found, Kernel) else found
            yield Outcome(block.page, block.line + line - 1, name, *result)


def _is_kernel(statement: ast.stmt) -> bool:
    """Whether a statement is a function marked as a kernel, or one that makes a tensor in HBM and returns it."""
    if not isinstance(statement, ast.FunctionDef):
        return False
    if any(ast.unparse(each).split("(")[0] == "nki.jit" for each in statement.decorator_list):
        return True
    words = {each.attr for each in ast.walk(statement) if isinstance(each, ast.Attribute)}
    return bool(words & {"hbm", "shared_hbm"}) and any(isinstance(e, ast.Return) for e in ast.walk(statement))


def _is_fragment(function: ast.FunctionDef) -> bool:
    """Whether the body has an ellipsis in it, or does nothing at all."""
    empty = [isinstance(each, ast.Pass) or _constant(each) for each in function.body]
    return all(empty) or any(_constant(each, Ellipsis) for each in ast.walk(function))


def _constant(node: ast.AST, value: object = None) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and (value is None or node.value.value is value)
    )


@contextlib.contextmanager
def _imports_from(folder: Path | None) -> Iterator[None]:
    before, modules = list(sys.path), set(sys.modules)
    if folder is not None:
        sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path[:] = before
        for name in set(sys.modules) - modules if folder is not None else ():
            if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


def _kernels(tree: ast.Module, path: str) -> Iterator[tuple[int, str, Kernel | tuple[str, str]]]:
    """Execute a block's definitions; yields each kernel when it is made, or a status and why there is none.

    Calls that stand alone are those of a device program, and settings of the environment are not ours to make.
    """
    names: dict[str, Any] = {"nki": nki, "nl": nl, "nisa": nisa, "np": np, "__name__": "example"}
    names["NKIObject"] = nl.NKIObject
    for statement in tree.body:
        if isinstance(statement, (ast.Expr, ast.If)) or "environ" in ast.unparse(statement)[:12]:
            continue
        kernel = _is_kernel(statement)
        if kernel and _is_fragment(statement):  # type: ignore[arg-type]
            yield statement.lineno, statement.name, ("fragment", OMITTED)  # type: ignore[attr-defined]
            continue
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                code = compile(ast.Module([statement], []), path, "exec", dont_inherit=True)
                exec(code, names)
        except Exception as error:
            if kernel:
                yield statement.lineno, statement.name, ("refused", _first_line(error))  # type: ignore[attr-defined]
            continue
        for name in _bound(statement):
            made = Kernel(names[name]) if kernel and isfunction(names[name]) else names.get(name)
            if isinstance(made, Kernel):
                yield statement.lineno, name, made


def _bound(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.FunctionDef):
        return [statement.name]
    if isinstance(statement, ast.Assign):
        return [each.id for each in statement.targets if isinstance(each, ast.Name)]
    return []


def _run(kernel: Kernel, name: str, block: Block) -> tuple[str, str]:
    """The status of one kernel and the target it ran on, or the first refusal."""
    refusals: list[Exception] = []
    for call in _calls(kernel, name, block):
        for target in TARGETS:
            args, kwargs = _made(call)
            try:
                with contextlib.redirect_stdout(io.StringIO()), patch.object(sys, "breakpointhook", _go_on):
                    nki.simulate(kernel, target=target)[call.cores](*args, **kwargs)
            except Exception as error:
                refusals.append(error)
            else:
                return "ok", target
    own = [each for each in refusals if not isinstance(each, UserAssertionError)]
    return "refused", _first_line((own or refusals)[0])


def _go_on(*args: object, **kwargs: object) -> None:
    """What `breakpoint()` does here."""


def _calls(kernel: Kernel, name: str, block: Block) -> Iterator[Call]:
    known = ARGUMENTS.get(name)
    if known is not None:
        yield from known
        return
    parameters = kernel.signature.parameters.values()
    needed = sum(each.default is Parameter.empty for each in parameters)
    for shape in GUESSES:
        yield Call((Tensor(shape),) * needed, {})


def _made(call: Call) -> tuple[list[object], dict[str, object]]:
    args = [each.make(seed) if isinstance(each, Tensor) else each for seed, each in enumerate(call.args)]
    return args, dict(call.kwargs)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"


def page(found: list[Outcome]) -> str:
    """The text of docs/official_examples.md."""
    rows = [
        f"| {each.page}:{each.line} | `{each.function}` | {_verdict(each)} | {cell(_remark(each))} |"
        for each in found
    ]
    return "\n".join(
        [
            "# Kernels of the official documentation",
            "",
            "Written by `python -m tools.official_examples CHECKOUT --write` from aws-neuron-sdk: all kernels",
            "in the docstrings of the API, in the guides, and in the files that these include, on made-up arguments.",
            "A kernel whose text is not all there is a fragment and is not run. Blocks that show single statements or",
            "functions of a kernel are not listed, nor are the pages of the kernel library, which is another package.",
            "",
            summary(found) + ".",
            "",
            "| where | kernel | | remark |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


def _verdict(outcome: Outcome) -> str:
    return {"ok": "runs", "fragment": "fragment", "refused": "cannot run"}[outcome.status]


def _remark(outcome: Outcome) -> str:
    if outcome.status == "ok":
        return f"on {outcome.detail}"
    changed = f"; runs with {outcome.changed}" if outcome.changed else ""
    return (outcome.reason or outcome.detail) + changed


def summary(found: list[Outcome]) -> str:
    """How many there are of each kind."""
    count = Counter(each.status for each in found)
    return f"{count['ok']} run, {count['refused']} cannot, {count['fragment']} are fragments"


def main(argv: list[str] | None = None) -> int:
    """Run, print. Returns the exit code: 1 if a kernel is refused without a known reason."""
    parser = argparse.ArgumentParser(description="Run the kernels of the official documentation.")
    parser.add_argument("checkout", type=Path, help="a copy of aws-neuron-sdk")
    parser.add_argument("--json", action="store_true", help="print records instead of a table")
    parser.add_argument("--write", action="store_true", help=f"renew {PAGE.relative_to(ROOT).as_posix()}")
    options = parser.parse_args(argv)
    found = [outcome for block in blocks(options.checkout) for outcome in outcomes(block)]
    if options.json:
        print(json.dumps([{**asdict(each), "reason": each.reason} for each in found], indent=1))
    else:
        for each in found:
            print(
                f"{each.page}:{each.line}  {each.function}  {each.status}  {each.detail}  {each.changed}".rstrip()
            )
        print(summary(found))
    if options.write:
        write({PAGE: page(found)})
    return int(any(each.status == "refused" and not each.reason for each in found))


if __name__ == "__main__":
    sys.exit(main())
