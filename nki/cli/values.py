"""What stands on the command line: which kernel, and its arguments.

A kernel is `FILE.py:NAME` or `FILE.nkir`. An argument is an array `x.npy`, with `x.npy:bfloat16` cast on load, a blank
array `float32[128,512]` (for commands that look at shapes only), or a Python literal; `name=` in front of any of these
makes it a keyword.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import sys
from typing import Any

import numpy as np

from nki import errors
from nki.dtypes import DType, as_dtype, cast_into
from nki.jit import Kernel, Launch
from nki.loaded import load_ir
from nki.span import Frame, Span, from_traceback

_BLANK = re.compile(r"([a-z_0-9]+)\[([0-9]+(?:,[0-9]+)*)\]")
_KEYWORD = re.compile(r"([A-Za-z_][A-Za-z_0-9]*)=(.+)", re.DOTALL)


class UsageError(Exception):
    """The command line itself is wrong; the message says how."""


def load_kernel(where: str) -> Any:
    """The kernel that `FILE.py:NAME` or `FILE.nkir` means. A plain function is as good as a decorated one."""
    if where.endswith(".nkir"):
        _need_file(where)
        return load_ir(where)
    path, _, name = where.rpartition(":")
    if not path.endswith(".py"):
        raise UsageError(f"expected FILE.py:KERNEL or FILE.nkir, got {where!r}")
    _need_file(path)
    module = _load_module(path)
    names = [key for key, value in vars(module).items() if isinstance(value, (Kernel, Launch))]
    found = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        known = ", ".join(names) or "none"
        raise UsageError(f"{path} has no kernel named {name!r}; kernels in it: {known}")
    return found


def _need_file(path: str) -> None:
    if not os.path.exists(path):
        raise UsageError(f"no such file: {path}")


def _load_module(path: str) -> Any:
    folder, file = os.path.split(os.path.abspath(path))
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = os.path.splitext(file)[0]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except errors.NkiError:
        raise
    except SyntaxError as error:
        frame = Frame(error.filename or path, error.lineno or 0, "", (error.offset or 1) - 1)
        raise errors.KernelError(f"{path} is not Python: {error.msg}", span=Span((frame,))) from error
    except Exception as error:
        text = f"{path} cannot be imported: {type(error).__name__}: {error}"
        raise errors.KernelError(text, span=from_traceback(error)) from error
    return module


def parse_arguments(words: list[str]) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments of the kernel."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for word in words:
        keyword = _KEYWORD.fullmatch(word)
        if keyword:
            kwargs[keyword[1]] = parse_value(keyword[2])
        elif kwargs:
            raise UsageError(f"positional argument {word!r} after a keyword argument")
        else:
            args.append(parse_value(word))
    return args, kwargs


def parse_value(word: str) -> Any:
    """One array or literal."""
    blank = _BLANK.fullmatch(word)
    if blank:
        return np.zeros([int(n) for n in blank[2].split(",")], _dtype(blank[1]).numpy)
    path, _, cast = word.partition(".npy:")
    if cast:
        return cast_array(_load_array(path + ".npy"), _dtype(cast))
    if word.endswith((".npy", ".npz")):
        return _load_array(word)
    try:
        return ast.literal_eval(word)
    except (ValueError, SyntaxError):
        raise UsageError(
            f"{word!r} is neither an array (x.npy, x.npy:bfloat16, float32[128,512]) nor a Python literal "
            "(quote strings: name=\"'text'\")"
        ) from None


def _dtype(name: str) -> DType:
    try:
        return as_dtype(name)
    except errors.DtypeError as error:
        raise UsageError(str(error)) from None


def _load_array(path: str) -> np.ndarray:
    _need_file(path)
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, OSError) as error:
        raise UsageError(f"{path} is not a .npy array: {error}") from None
    if not isinstance(array, np.ndarray):
        raise UsageError(f"{path} is an archive, not a single array")
    return array


def cast_array(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Convert as the machine does; raw bytes of the right width (`.npy` has no bfloat16) are taken as they are."""
    if array.dtype.kind == "V" and array.itemsize == dtype.itemsize:
        return array.view(dtype.numpy)
    if array.dtype.kind not in "biuf":
        raise UsageError(f"an array of {array.dtype} cannot be cast to {dtype}")
    source = array
    if array.dtype.kind in "iu" and array.itemsize > 4:
        if dtype.is_integer:
            to, by = np.iinfo(dtype.numpy), np.iinfo(array.dtype)
            clipped: np.ndarray = np.clip(array, max(to.min, by.min), min(to.max, by.max))
            return clipped.astype(dtype.numpy)
        source = array != 0 if dtype.kind == "bool" else array.astype(np.float32)
    elif array.dtype.kind == "f" and array.itemsize > 4:
        source = array.astype(np.float32)
    result = np.empty(array.shape, dtype.numpy)
    with np.errstate(all="ignore"):
        cast_into(result, source)
    return result


def save_array(path: str, array: Any) -> None:
    """Write one output; types that `.npy` does not know are written as raw bytes of their width."""
    if hasattr(array, "detach"):
        from nki.arguments import from_torch

        array = from_torch(array)
    np.save(path, array, allow_pickle=False)
