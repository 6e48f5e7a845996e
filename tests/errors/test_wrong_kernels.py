"""The ten mistakes of a newcomer: each is refused with file, line, operand, limit and remedy; nothing is touched."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import nki
from nki import errors
from tests.conftest import Golden
from tests.errors import wrong_kernels
from tests.errors.wrong_kernels import WRONG, Wrong

SOURCE = Path(wrong_kernels.__file__)

each = pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)
carets = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 knows no columns")


def raised(wrong: Wrong, eager: bool = False) -> errors.NkiError:
    """The error of a run. The caller's arrays must be as they were."""
    arrays = wrong.arrays()
    with pytest.raises(wrong.error) as caught:
        nki.simulate(wrong.kernel, target=wrong.target, eager=eager)(*arrays)
    for array, before in zip(arrays, wrong.arrays()):
        np.testing.assert_array_equal(array, before)
    return caught.value


def faulty_line(wrong: Wrong) -> int:
    """The line of the fault: the only one in its kernel with the words of `wrong.line`."""
    first = wrong.kernel.func.__code__.co_firstlineno
    lines = SOURCE.read_text(encoding="utf-8").splitlines()[first - 1 :]
    return first + next(number for number, line in enumerate(lines) if wrong.line in line)


@each
@carets
def test_text(wrong: Wrong, golden: Golden) -> None:
    golden(str(raised(wrong)))


@each
def test_place_and_words(wrong: Wrong) -> None:
    error = raised(wrong)
    assert error.span is not None
    assert (error.span.file, error.span.line) == (str(SOURCE), faulty_line(wrong))
    text = str(error)
    assert f"wrong_kernels.py:{faulty_line(wrong)}" in text
    for word in wrong.words:
        assert word in text
    assert error.remedy
    assert error.allowed is not None


@each
def test_eager_says_the_same(wrong: Wrong) -> None:
    assert str(raised(wrong, eager=True)) == str(raised(wrong))


@each
def test_check_says_the_same_without_running(wrong: Wrong) -> None:
    arrays = wrong.arrays()
    found = wrong.kernel.check(*arrays, target=wrong.target)[0]
    error = raised(wrong)
    assert (found.code, found.severity) == (wrong.error.code, "error")
    assert (found.file, found.line) == (str(SOURCE), faulty_line(wrong))
    assert found.message.startswith(error.explain())
    assert found.message.count("called from") == len(error.span.frames) - 1  # type: ignore[union-attr]
    assert str(found).startswith(f"{SOURCE}:{faulty_line(wrong)}: error[{wrong.error.code}]: ")
    for array, before in zip(arrays, wrong.arrays()):
        np.testing.assert_array_equal(array, before)


@each
def test_every_run_refuses(wrong: Wrong) -> None:
    for sanitize in (None, True):
        with pytest.raises(wrong.error):
            nki.simulate(wrong.kernel, target=wrong.target, sanitize=sanitize)(*wrong.arrays())


def test_reading_what_was_never_written_may_be_allowed() -> None:  # design D5
    x = np.ones((128, 512), np.float32)
    result = nki.simulate(wrong_kernels.never_written, sanitize=False)(x)
    assert np.isnan(result).all()
    assert not x.any()
