"""`nki new-kernel NAME`: the folder of an operator that passes its tests, to be filled with another kernel."""

from __future__ import annotations

import argparse
import keyword
from collections.abc import Iterator
from pathlib import Path

import jinja2

from nki.cli.values import UsageError

_TEMPLATES = Path(__file__).parent / "skeleton"
_FAMILY = "contributed"
_TEST = "test.py.j2"


def new_kernel(options: argparse.Namespace) -> int:
    """Write the files and say what to do next; nothing is overwritten."""
    name, family = options.name, options.family
    for word in (name, family or _FAMILY):
        if not word.isidentifier() or keyword.iskeyword(word) or word != word.lower():
            raise UsageError(
                f"{word!r} cannot name a kernel or its family; use lower case, digits and underscores: row_scale"
            )
    files = dict(_files(name, family, Path.cwd()))
    taken = [str(path) for path in files if path.exists()]
    if taken:
        raise UsageError(f"{', '.join(taken)} exists already; choose another name or remove it")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(Path.cwd()))
    test = next(path for path in files if path.name.startswith("test_")).relative_to(Path.cwd())
    print(
        f"\nTry it:  python -m pytest {test}\nThen put your kernel into kernel.py and what it means into reference.py."
    )
    return 0


def _files(name: str, family: str | None, here: Path) -> Iterator[tuple[Path, str]]:
    """Paths and texts. In a checkout of nki_lib the operator becomes part of it, elsewhere it stands alone."""
    library = (here / "nki_lib" / "common").is_dir()
    if family and not library:
        raise UsageError(f"--family {family} needs a checkout of nki_lib, and {here} is none; leave it out")
    family = family or _FAMILY
    folder = here / "nki_lib" / family / name if library else here / name
    package = f"nki_lib.{family}.{name}" if library else name
    facts = {
        "name": name,
        "title": name.replace("_", " "),
        "package": package,
        "library": "nki_lib" if library else name,
        "door": "nki_lib" if library else f"{name}.api",
    }
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    if library and not (folder.parent / "__init__.py").exists():
        yield folder.parent / "__init__.py", f'"""Operators of the family {family}."""\n'
    for template in sorted(_TEMPLATES.glob("*.j2")):
        text = environment.get_template(template.name).render(facts)
        if template.name != _TEST:
            yield folder / template.name.removesuffix(".j2"), text
        else:
            place = here / "tests" / "nki_lib" if library else folder
            yield place / f"test_{name}.py", text
