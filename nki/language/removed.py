"""Names and keywords of older releases, each with what replaces it.

Names are raised on access, by `nki/language/__init__.py`; keywords when a function of `nl` was called with one.
"""

from __future__ import annotations

import difflib
import inspect
import re
import sys
from typing import Final

from nki import errors
from nki.isa.removed import KEYWORDS as INSTRUCTION_KEYWORDS
from nki.span import capture

REPLACEMENTS: Final = {
    "arange": "address tiles with slices: t[0:128, 0:512], or t.ap(pattern) for other patterns",
    "mgrid": "address tiles with slices: t[0:128, 0:512], or t.ap(pattern) for other patterns",
    "par_dim": "dimension 0 is the partition dimension; for blocks of tiles keep a Python list of nl.ndarray",
    "static_cast": "nl.copy(x, dtype=...)",
    "cast": "nl.copy(x, dtype=...)",
    "loop_reduce": "accumulate in the loop: nisa.tensor_tensor(dst=acc, data1=acc, data2=x, op=nl.add)",
    "atomic_rmw": "nisa.dma_compute",
    "all_reduce": "nki.collectives.all_reduce",
    "gemm_grid": "slices of a tile",
    "gemm_stationary_grid": "slices of a tile",
    "finfo": "numpy.finfo, or ml_dtypes.finfo for the narrow types",
    "fp32": "float(numpy.finfo(numpy.float32).min) for fp32.min",
    "bfp16": "float(ml_dtypes.finfo('bfloat16').min) for bfp16.min",
}


KEYWORDS: Final = {
    **INSTRUCTION_KEYWORDS,
    "directives": "leave it out; the loop is unrolled as it is",
    "lazy_initialization": "leave it out",
    "precise_schedule": "leave it out; the loop is unrolled as it is",
    "prefix": "the parameter is called print_prefix",
}


def removed(name: str) -> Exception:
    """The error for a name that `nki.language` does not have."""
    if name in REPLACEMENTS:
        return errors.RemovedApiError(
            f"nl.{name} belongs to an older release and is not part of nki.language",
            found=f"nl.{name}",
            remedy=f"use instead: {REPLACEMENTS[name]}",
            span=capture(2),
        )
    return AttributeError(f"module 'nki.language' has no attribute {name!r}")


_UNEXPECTED = re.compile(
    r"(?:[\w.]+\.)?(\w+)\(\) got an unexpected keyword argument '(\w+)'(?:\. Did you mean '\w+'\?)?"
)
"""What Python says, from 3.13 on with a proposal of its own."""


def _proposal(keyword: str, signature: inspect.Signature) -> str:
    close = difflib.get_close_matches(keyword, signature.parameters, n=1)
    return f"did you mean `{close[0]}`?" if close else f"remove `{keyword}=`"


def unexpected_keyword(error: Exception) -> errors.UnknownKeywordError | None:
    """The error for a function of `nl` that was called with a keyword it does not have; `None` for other errors."""
    match = _UNEXPECTED.fullmatch(str(error)) if isinstance(error, TypeError) else None
    function = vars(sys.modules["nki.language"]).get(match[1]) if match else None
    if match is None or not callable(function) or _of_user(match[1], function, error):
        return None
    name, keyword = match.groups()
    return errors.UnknownKeywordError(
        f"nl.{name}() got an unexpected keyword argument '{keyword}'",
        operand=keyword,
        found=f"{keyword}=...",
        allowed=f"nl.{name}{inspect.signature(function)}",
        remedy=KEYWORDS.get(keyword) or _proposal(keyword, inspect.signature(function)),
    )


def _of_user(name: str, function: object, error: Exception) -> bool:
    """Whether `name`, where the error was raised, is another function than ours."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    frame = trace.tb_frame
    return frame.f_locals.get(name, frame.f_globals.get(name, function)) is not function
