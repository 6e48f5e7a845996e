"""Recorded programs: they run as what they were recorded from, and check what they are given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.interpreter.chain_kernel import kernel_of
from tests.interpreter.chains import Chain, inputs
from tests.nki import kernels
from tests.nki.kernels import down, f32, up

X = np.arange(8, dtype=f32).reshape(2, 4)
Y = X + 10

Record = Callable[..., Any]


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """Write a kernel's program to a file and read it back."""

    def recorded(kernel: Any, *args: Any, **options: Any) -> Any:
        path = tmp_path / "program.nkir"
        path.write_text(str(nki.jit(kernel).ir(*args, **options)), encoding="utf-8")
        return nki.load_ir(path)

    return recorded


def swap(x, y):
    """Writes x into y and returns y and the old y."""
    old = up(y)
    nisa.dma_copy(dst=y, src=up(x))
    return y, down(old)


@pytest.mark.parametrize("seed", [3, 1338, 4947, 5000])
def test_same_bits_as_the_kernel(record: Record, seed: int) -> None:
    kernel = kernel_of(Chain.of(seed))
    loaded = record(kernel, *inputs(0))
    for data in (1, 2):
        given, again = inputs(data), inputs(data)
        for one, other in zip(kernel(*given), loaded(*again)):
            assert np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(other).tobytes()
        assert [x.tobytes() for x in given] == [x.tobytes() for x in again]


def test_arguments_by_position_and_by_name(record: Record) -> None:
    loaded = record(swap, X, Y)
    for call in (lambda x, y: loaded(x, y), lambda x, y: loaded(x, y=y), lambda x, y: loaded(y=y, x=x)):
        x, y = X.copy(), Y.copy()
        same, old = call(x, y)
        assert same is y
        np.testing.assert_array_equal(y, X)
        np.testing.assert_array_equal(old, Y)


def test_accepted_wherever_a_kernel_is(record: Record) -> None:
    loaded = record(swap, X, Y)
    np.testing.assert_array_equal(nki.simulate(loaded)(X, Y.copy())[1], Y)
    np.testing.assert_array_equal(nki.simulate(loaded, sanitize=True)(X, Y.copy())[1], Y)
    assert str(loaded.ir(X, Y)) == str(loaded.ir())
    assert loaded.check() == []
    assert "swap" in repr(loaded) and loaded.__name__ == "swap"
    assert nki.profile(loaded)(X, Y).latency_us > 0


def test_torch_in_torch_out(record: Record) -> None:
    torch = pytest.importorskip("torch")
    x, y = torch.from_numpy(X.copy()), torch.from_numpy(Y.copy())
    same, old = record(swap, X, Y)(x, y)
    assert same is y
    assert torch.equal(y, x)
    assert isinstance(old, torch.Tensor)


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((X,), {}, "2 tensors, got 1"),
        ((X, Y, Y), {}, "does not take these arguments"),
        ((X, Y), {"y": Y}, "does not take these arguments"),
        ((X,), {"z": Y}, "does not take these arguments"),
        ((X, Y[:1]), {}, "`y` was recorded as"),
        ((X, Y.astype(np.int32)), {}, "`y` was recorded as"),
        ((X, 1.0), {}, "2 tensors, got 1"),
    ],
)
def test_other_arguments_are_refused(
    record: Record, args: tuple[Any, ...], kwargs: dict[str, Any], words: str
) -> None:
    loaded = record(swap, X, Y)
    with pytest.raises(errors.ArgumentError, match=words) as info:
        loaded(*args, **kwargs)
    assert __file__ in str(info.value)
    with pytest.raises(errors.ArgumentError):
        nki.simulate(loaded)(*args, **kwargs)


def test_another_target_is_refused(record: Record) -> None:
    loaded = record(swap, X, Y, target="trn1")
    with pytest.raises(errors.TargetError, match="trn1"):
        nki.simulate(loaded, target="trn2")(X, Y)
    np.testing.assert_array_equal(nki.simulate(loaded, target="inf2")(X, Y.copy())[1], Y)
    np.testing.assert_array_equal(loaded(X, Y.copy())[1], Y)


def test_faults_of_a_recorded_program_are_found_again(record: Record, tmp_path: Path) -> None:
    def kernel(x):
        tile = nl.ndarray((2, 4), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=0.0)
        return down(tile)

    text = str(nki.jit(kernel).ir(X))
    lines = [line for line in text.splitlines() if not line.strip().startswith("memset")]
    path = tmp_path / "broken.nkir"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    loaded = nki.load_ir(path)
    (found,) = loaded.check()
    assert (found.code, found.severity) == ("uninitialized-read", "error")
    assert found.file == kernels.__file__  # the source it was staged from
    with pytest.raises(errors.UninitializedReadError):
        loaded(X)
    assert np.isnan(nki.simulate(loaded, sanitize=False)(X)).all()


def test_a_file_that_is_missing() -> None:
    with pytest.raises(FileNotFoundError):
        nki.load_ir("no/such/file.nkir")
