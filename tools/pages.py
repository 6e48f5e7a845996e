"""Texts that belong in files: written, or compared with what is there. Shared by the generators beside it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

ROOT = Path(__file__).resolve().parent.parent
"""The top of the checkout."""


def environment() -> Environment:
    """Templates of this folder; a name that the view model lacks is an error."""
    found = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters["cell"] = cell
    return found


def cell(value: object) -> str:
    """Text that may stand in a cell of a Markdown table."""
    return str(value).replace("|", r"\|").replace("\n", " ")


def stale(pages: Mapping[Path, str]) -> list[str]:
    """Names of the files whose text is not what it should be."""
    return [
        path.relative_to(ROOT).as_posix()
        for path, text in pages.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]


def write(pages: Mapping[Path, str]) -> int:
    """Write what has changed and say so. Returns the exit code."""
    changed = stale(pages)
    for path, text in pages.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    print("\n".join(f"wrote {name}" for name in changed) or "nothing has changed")
    return 0


def report(faults: list[str], command: str) -> int:
    """Print the files that are not current and how to renew them. Returns the exit code."""
    for name in faults:
        print(f"{name} is not current", file=sys.stderr)
    if faults:
        print(f"renew with: {command}", file=sys.stderr)
    return 1 if faults else 0
