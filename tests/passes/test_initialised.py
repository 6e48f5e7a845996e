"""Nothing is read before it is written; tiles laid over each other; and the masks and maps that prove it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.errors import Diagnostic
from nki.jit import Options

X = np.ones((4, 8), np.float32)


def fresh(shape: Any = (4, 8), dtype: Any = nl.float32, **where: Any) -> Any:
    return nl.ndarray(shape, dtype=dtype, **where)


def fill(view: Any) -> None:
    nisa.memset(dst=view, value=0)


def read(view: Any) -> None:
    nisa.tensor_copy(dst=fresh(view.shape, view.dtype), src=view)


def region(function: Any) -> str:
    """What a kernel reads uninitialised, as the error names it."""
    with pytest.raises(errors.UninitializedReadError) as info:
        nki.simulate(function)(X)
    return str(info.value.found).removesuffix(" uninitialised")


CASES = {
    "all of it": lambda t: read(t),
    "[0:4, 7]": lambda t: (fill(t[:, 0:7]), read(t)),
    "[0:4, 2:4]": lambda t: (fill(t[:, 0:2]), fill(t[:, 4:8]), read(t[:, 1:5])),
    "[3, 0:8]": lambda t: (fill(t[0:3, :]), read(t)),
    "[0:4, 1:8]": lambda t: (fill(t[:, 0:8:2]), read(t)),
    "[1, 3]": lambda t: ([fill(t[i, j]) for i in range(4) for j in range(8) if (i, j) != (1, 3)], read(t)),
}


@pytest.mark.parametrize("expected", CASES)
def test_the_missing_region_is_named(expected: str) -> None:
    def kernel(x):
        CASES[expected](fresh())
        return x

    assert region(kernel) == expected


def test_parts_that_are_written_may_be_read() -> None:
    def kernel(x):
        tile = fresh((4, 2, 4))
        fill(tile[:, 0, :])
        read(tile[:, 0, 1:3])
        fill(tile[:, 1, 0:3])
        fill(tile[:, 1, 3])
        read(tile)
        read(tile.permute((0, 2, 1)))
        wide = tile.view(nl.uint8)
        read(wide[:, :, 1:7])
        return x

    assert nki.simulate(kernel, sanitize=True)(X) is X


def test_bytes_of_another_type_are_counted() -> None:
    def kernel(x):
        tile = fresh()
        fill(tile.view(nl.bfloat16)[:, 1:16])
        read(tile[:, 1:8])
        read(tile)
        return x

    assert region(kernel) == "[0:4, 0]"


def test_operand_that_is_updated_in_place_is_read() -> None:
    def kernel(x):
        tile = fresh((4, 8), buffer=nl.psum)
        stationary = fresh((4, 4))
        fill(stationary)
        moving = fresh()
        fill(moving)
        nisa.nc_matmul(dst=tile, stationary=stationary, moving=moving, accumulate=True)
        return x

    with pytest.raises(errors.UninitializedReadError):
        nki.simulate(kernel)(X)


def test_hbm_tensors_are_proved_too() -> None:
    def kernel(x):
        inside = fresh((8, 8), buffer=nl.private_hbm)
        nisa.dma_copy(dst=inside[0:4], src=x)
        tile = fresh()
        nisa.dma_copy(dst=tile, src=inside[2:6])
        return x

    assert region(kernel) == "[4:6, 0:8]"


def test_warnings_instead_of_errors() -> None:  # design D5
    def kernel(x):
        tile = fresh()
        read(tile)
        read(tile)
        read(fresh())
        return x

    kernel = nki.jit(kernel)
    compiled = kernel.compiled(Options(sanitize=False), (X,), {})
    found = compiled.program.diagnostics
    assert [(d.code, d.severity) for d in found if d.severity != "note"] == [
        ("uninitialized-read", "warning")
    ] * 2
    assert len(compiled.poisoned) == 2


def outcome(function: Any) -> list[Diagnostic]:
    """What the pass says, not the rules of the instructions."""
    codes = ("aliasing", "unwritten-output", "uninitialized-read")
    return [found for found in nki.jit(function).check(X) if found.code in codes]


def test_outputs_that_are_partly_written_are_told_at_the_return() -> None:  # PC-15
    def kernel(x):
        out = fresh((300, 8), buffer=nl.shared_hbm)
        tile = fresh((100, 8))
        fill(tile)
        for start in (0, 100):
            nisa.dma_copy(dst=out[start : start + 100], src=tile)
        return out

    (found,) = outcome(kernel)
    assert found.code == "unwritten-output"
    assert "[200:300, 0:8] never written" in found.message
    assert found.line == kernel.__code__.co_firstlineno + 6
    result = nki.simulate(kernel)(X)
    assert not result[:200].any() and np.isnan(result[200:]).all()


def test_an_output_that_is_not_written_at_all() -> None:
    def kernel(x):
        return fresh(buffer=nl.shared_hbm, dtype=nl.int32)

    (found,) = outcome(kernel)
    assert "all elements never written" in found.message
    assert (nki.simulate(kernel)(X) == 4).all()


# --- tiles over each other ----------------------------------------------------------------------------------


def test_reading_what_another_tile_has_overwritten() -> None:  # PC-39
    def kernel(x):
        lower = fresh(name="lower", address=(0, 0))
        upper = fresh(name="upper", address=(0, 16))
        fill(lower)
        fill(upper[:, 6:8])  # beside `lower`
        read(lower)
        fill(upper)
        read(lower[:, 0:4])
        read(lower)
        return x

    (found,) = outcome(kernel)
    assert found.code == "aliasing"
    assert "`lower`" in found.message and "`upper`" in found.message
    assert found.line == read.__code__.co_firstlineno + 1
    assert f"called from {__file__}:{kernel.__code__.co_firstlineno + 8}" in found.message


def test_taking_turns_is_fine() -> None:
    def kernel(x):
        first, second = fresh(address=(0, 0)), fresh((2, 4), address=(1, 8))
        for _ in range(2):
            fill(first)
            read(first)
            fill(second)
            read(second)
        return x

    assert outcome(kernel) == []


def test_reading_through_another_tile_is_meant() -> None:
    def kernel(x):
        whole, half = fresh(address=(0, 0)), fresh((4, 8), nl.uint16, address=(0, 16))
        fill(whole)
        read(half)
        return x

    assert outcome(kernel) == []


def test_bytes_outside_of_the_other_tile_are_missed() -> None:
    def kernel(x):
        whole, half = fresh(address=(0, 0)), fresh((4, 8), nl.uint16, address=(0, 20))
        fill(whole)
        read(half)
        return x

    with pytest.raises(errors.UninitializedReadError):
        nki.simulate(kernel)(X)


def test_other_rows_and_other_memories_do_not_touch() -> None:
    def kernel(x):
        tiles = [fresh(address=(0, 0)), fresh(address=(4, 0)), fresh(address=(0, 0), buffer=nl.psum)]
        for tile in tiles:
            fill(tile)
        for tile in tiles:
            read(tile)
        return x

    assert outcome(kernel) == []
