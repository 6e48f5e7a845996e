"""Functions of `nki.language` over all dtypes and generations: accepted, of the right result type, alike everywhere.

Their values are tested in tests/language.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.language as nl
from nki import errors
from nki.dtypes import ALL, DType
from nki.target_facts import GENERATIONS
from tests.isa.tiles import load, sbuf, store
from tools.conformance import functions
from tools.conformance_areas import SINCE

NUMBERS = [dtype for dtype in ALL if dtype.kind != "packed"]
BITS = ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift", "invert", "logical_not")
MODULES = functions()


def named(*modules: str) -> list[str]:
    """The functions of some modules of `nki.language` that work on any numbers."""
    return [name for name, module in MODULES.items() if module in modules and name not in (*BITS, *SINCE)]


def results(names: list[str], call: Any, dtype: DType, target: str, **options: Any) -> dict[str, np.ndarray]:
    """What each function gives on small numbers of this type."""
    x = (np.arange(8) % 4 + 1).reshape(2, 4).astype(dtype.numpy)

    @nki.jit
    def kernel(x):
        t = load(x)
        made = [call(getattr(nl, name), t) for name in names]
        copies = []
        for tile in made:
            copies.append(sbuf(tile.shape, tile.dtype))
            nki.isa.tensor_copy(dst=copies[-1], src=tile)
        return tuple(store(copy) for copy in copies)

    return dict(zip(names, nki.simulate(kernel, target=target, **options)(x), strict=True))


def alike(names: list[str], call: Any, dtype: DType) -> dict[str, np.ndarray]:
    """The results, after checking that generations and ways to run agree."""
    found = [results(names, call, dtype, target) for target in GENERATIONS]
    found.append(results(names, call, dtype, GENERATIONS[-1], eager=True))
    for other in found[1:]:
        for name in names:
            assert other[name].tobytes() == found[0][name].tobytes(), (name, dtype)
    return found[0]


@pytest.fixture(autouse=True)
def _no_round_trips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NKI_CHECK", "0")


@pytest.mark.parametrize("dtype", NUMBERS)
def test_functions_of_one_tile(dtype: DType) -> None:
    for name, found in alike(named("unary", "trigonometry"), lambda f, t: f(t), dtype).items():
        assert found.dtype == dtype.numpy and found.shape == (2, 4), name


@pytest.mark.parametrize("dtype", NUMBERS)
def test_functions_of_two_tiles(dtype: DType) -> None:
    for name, found in alike(named("binary"), lambda f, t: f(t, t), dtype).items():
        wanted = nl.float32 if name == "divide" and not dtype.is_float else dtype
        assert found.dtype == wanted.numpy and found.shape == (2, 4), name


@pytest.mark.parametrize("name", SINCE)
def test_functions_that_come_later(name: str) -> None:
    for target in GENERATIONS:
        if GENERATIONS.index(target) >= GENERATIONS.index(SINCE[name]):
            assert (
                results([name], lambda f, t: f(t, t), nl.float32, target)[name].tolist() == [[1, 2, 3, 4]] * 2
            )
        else:
            with pytest.raises(errors.TargetError, match=SINCE[name]):
                results([name], lambda f, t: f(t, t), nl.float32, target)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_functions_with_a_result_type(dtype: DType) -> None:
    names = named("unary", "binary")
    binary = {getattr(nl, name) for name in named("binary")}

    def call(function, t):
        return function(t, t, dtype=nl.float32) if function in binary else function(t, dtype=nl.float32)

    for name, found in results(names, call, dtype, "trn3").items():
        assert found.dtype == np.float32, name


@pytest.mark.parametrize("dtype", [d for d in ALL if d.is_integer])
def test_functions_of_bits(dtype: DType) -> None:
    one = [name for name in BITS if name in ("invert", "logical_not")]
    two = [name for name in BITS if name not in one]
    for names, call in ((one, lambda f, t: f(t)), (two, lambda f, t: f(t, t))):
        assert all(found.dtype == dtype.numpy for found in alike(names, call, dtype).values())


@pytest.mark.parametrize("dtype", NUMBERS)
def test_reductions(dtype: DType) -> None:
    for found in alike(named("reductions"), lambda f, t: f(t, axis=1), dtype).values():
        assert found.size == 2


@pytest.mark.parametrize("dtype", [nl.float32, nl.bfloat16, nl.float16, nl.int32, nl.uint8])
def test_roundings(dtype: DType) -> None:
    one = [name for name in named("rounding") if "mod" not in name]
    two = [name for name in named("rounding") if "mod" in name]
    for names, call in ((one, lambda f, t: f(t)), (two, lambda f, t: f(t, t))):
        for name, found in alike(names, call, dtype).items():
            assert found.dtype == dtype.numpy and found.shape == (2, 4), name
