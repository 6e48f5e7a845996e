"""Each class of `nki/errors.py` is met once: its text, its Python base class, and that it can be caught as such."""

from __future__ import annotations

import builtins
import re
import sys
import traceback

import pytest

from nki import errors, isa
from tests.conftest import Golden
from tests.errors import each_class
from tests.errors.each_class import PROVOKE

PYTHON = {
    "ArgumentError": TypeError,
    "BoundsError": IndexError,
    "CapacityError": MemoryError,
    "DtypeError": TypeError,
    "OutsideKernelError": RuntimeError,
    "PartitionLimitError": AssertionError,
    "RemovedApiError": NotImplementedError,
    "ShapeError": ValueError,
    "SubsetError": SyntaxError,
    "TargetError": ValueError,
    "TruthValueError": TypeError,
    "UnknownKeywordError": TypeError,
    "UserAssertionError": AssertionError,
    "UserError": KeyError,
}
PART_OF_THE_STATEMENT = ("TruthValueError", "UserAssertionError")
"""Errors of `if` and `assert`: newer Pythons point at the test alone, older ones at the whole statement."""

names = pytest.mark.parametrize("name", sorted(PROVOKE))


def provoked(name: str) -> errors.NkiError:
    with pytest.raises(errors.NkiError) as caught:
        PROVOKE[name]()
    return caught.value


def test_codes_are_distinct() -> None:
    codes = [kind.code for kind in errors.all_errors()]
    assert len(codes) == len(set(codes))


def test_hardware_limits_are_one_family() -> None:
    assert isa.NkiValidationError is errors.NkiValidationError


@names
@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 knows no columns")
def test_text(name: str, golden: Golden) -> None:
    text = str(provoked(name))
    if name in PART_OF_THE_STATEMENT:
        text = re.sub(r"(?m)^ +\| +\^+\n?", "", text)
    golden(re.sub(r"/\S*/(?=broken\.nkir)", "", text))


@names
def test_class(name: str) -> None:
    error = provoked(name)
    kind = getattr(errors, name.split()[0])
    assert isinstance(error, kind)
    assert error.code == kind.code
    for builtin in (PYTHON.get(kind.__name__, Exception), errors.NkiError):
        assert isinstance(error, builtin)
        assert builtin is errors.NkiError or getattr(builtins, builtin.__name__) is builtin


@names
def test_place_is_in_the_users_file(name: str) -> None:
    error = provoked(name)
    assert error.span is not None
    inner = error.span.frames[0]
    if name.startswith("Ir"):
        assert inner.file.endswith("broken.nkir")
        return
    assert inner.file == each_class.__file__
    files = {frame.file for frame in error.span.frames}
    assert not any("/nki/" in file and "/tests/" not in file for file in files)


@names
def test_python_prints_all_of_it(name: str) -> None:
    error = provoked(name)
    assert str(error) in "".join(traceback.format_exception_only(type(error), error))
    assert error.diagnostic().severity == "error"
    assert error.diagnostic().line == error.span.line  # type: ignore[union-attr]
