"""Whose code is it? User functions are rewritten, recorded and named in errors; library functions are left alone.

Library: the standard library, whatever is installed in site-packages, and this package. A package from site-packages
becomes user code once one of its functions is rewritten as a kernel (`adopt`), so that libraries of kernels work
installed as they work checked out.
"""

from __future__ import annotations

import linecache
import os
import site
import sys
import sysconfig
from collections.abc import Callable
from types import CodeType

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_adopted: set[str] = set()
_files: dict[str, bool] = {}
on_adopt: list[Callable[[], None]] = []
"""Called after a package was adopted: empties the tables that hold decisions made before."""


def _library_roots() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    roots = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib") if name in paths}
    roots.update(getattr(site, "getsitepackages", list)())
    roots.add(site.getusersitepackages() if hasattr(site, "getusersitepackages") else "")
    forms = {form for root in roots if root for form in (os.path.abspath(root), os.path.realpath(root))}
    return tuple(form + os.sep for form in sorted(forms))


_ROOTS = _library_roots()


def _top_level(path: str) -> str | None:
    """The folder or file directly under site-packages that holds `path`; None outside of it."""
    for marker in _INSTALLED:
        head, found, tail = path.rpartition(marker)
        if found:
            first, separator, _ = tail.partition(os.sep)
            return head + marker + first + separator
    return None


def _decide(file: str) -> bool:
    if file.startswith(
        "<"
    ):  # exec'd or typed; `<frozen ...>` and NumPy's `<__array_function__ ...>` are not the user's
        return file in ("<string>", "<stdin>") or bool(linecache.getlines(file))
    path = os.path.abspath(file)
    top = _top_level(path)
    if top is not None and top in _adopted:
        return True
    return top is None and not path.startswith(_PACKAGE) and not path.startswith(_ROOTS)


def is_user_file(file: str) -> bool:
    """True if the code of `file` is the user's."""
    known = _files.get(file)
    if known is None:
        known = _files[file] = _decide(file)
    return known


def is_user_code(code: CodeType) -> bool:
    """True if `code` is the user's."""
    return is_user_file(code.co_filename)


def is_user_module(name: str) -> bool:
    """True if the module called `name` is the user's (a script, a notebook, a checkout)."""
    if name.split(".")[0] in sys.stdlib_module_names and name != "__main__":
        return False
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is None or is_user_file(file)


def adopt(code: CodeType) -> None:
    """Treat the installed package that holds `code` as user code from now on. The standard library is never adopted."""
    top = _top_level(os.path.abspath(code.co_filename))
    if top is not None and top not in _adopted and not top.startswith(_PACKAGE):
        _adopted.add(top)
        _files.clear()
        for clear in on_adopt:
            clear()
