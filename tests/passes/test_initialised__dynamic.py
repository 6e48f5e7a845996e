"""Places that the device decides: what may have been written there, and by which of two tiles over each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.jit import Options
from tests.language.both import both, number, register_of
from tests.passes.test_initialised import X, fill, fresh, outcome, read


def somewhere(view: Any, width: int = 1) -> Any:
    """Columns of a view whose place a register decides."""
    return view[:, nl.ds(nisa.register_alloc(0), width)]


def index() -> Any:
    """An index tile that holds 0."""
    zero = fresh((1, 1), nl.int32)
    fill(zero)
    return zero


def test_a_dynamic_read_of_a_tile_that_is_written_in_part_may_see_the_poison() -> None:
    @nki.jit
    def kernel(x, n):
        tile, out = fresh(), fresh((4, 4))
        before = fresh()
        fill(before)
        read(before)
        nisa.memset(dst=tile[:, 0:4], value=1)
        nisa.tensor_copy(dst=out, src=tile[:, nl.ds(register_of(n), 4)])
        result = fresh((4, 4), buffer=nl.shared_hbm)
        nisa.dma_copy(dst=result, src=out)
        return result

    for start in range(5):
        expected = np.ones((4, 4), np.float32)
        expected[:, 4 - start :] = np.nan
        np.testing.assert_array_equal(both(kernel, X, number(start)), expected)


def test_only_what_a_dynamic_read_may_reach_must_be_written() -> None:
    def kernel(x):
        tile, other = fresh(), fresh(name="other")
        fill(tile[:, 2:6])
        read(somewhere(tile[:, 2:6], 2))
        read(somewhere(other))
        return x

    compiled = nki.jit(kernel).compiled(Options(sanitize=False), (X,), {})
    assert [d.line for d in compiled.program.diagnostics if d.code == "uninitialized-read"] == [
        read.__code__.co_firstlineno + 1
    ]
    assert compiled.poisoned == {"other"}


# --- tiles over each other ----------------------------------------------------------------------------------

LOWER = {"name": "lower", "address": (0, 0)}
UPPER = {"name": "upper", "address": (0, 16)}  # its columns 0:4 lie on columns 4:8 of `lower`


def aliasing(function: Any) -> list[str]:
    """What is read after another tile has overwritten it, in a kernel made of steps on the two tiles."""

    def kernel(x):
        function(fresh(**LOWER), fresh(**UPPER))
        return x

    return [found.message.split("`")[1] for found in outcome(kernel)]


def test_a_dynamic_write_may_have_overwritten_what_it_reaches() -> None:
    def steps(lower: Any, upper: Any) -> None:
        fill(lower)
        fill(somewhere(upper))
        read(lower)
        fill(upper[:, 0:1])
        fill(somewhere(upper[:, 2:6], 2))
        read(lower[:, 5:8])

    assert aliasing(steps) == []
    assert aliasing(lambda lower, upper: (steps(lower, upper), read(lower[:, 4:6]))) == ["lower"]
    assert aliasing(lambda lower, upper: (steps(lower, upper), fill(upper), read(lower[:, 7]))) == ["lower"]


def test_a_dynamic_write_may_have_taken_back_what_it_reaches() -> None:
    def steps(lower: Any, upper: Any) -> None:
        fill(upper)
        fill(lower)
        fill(somewhere(upper[:, 1:8]))
        read(upper[:, 1:8])
        read(somewhere(upper[:, 0:2]))

    assert aliasing(steps) == []
    assert aliasing(lambda lower, upper: (steps(lower, upper), read(upper))) == ["upper"]


def test_a_dynamic_write_loses_nothing() -> None:
    def steps(lower: Any, upper: Any) -> None:
        fill(upper)
        fill(somewhere(upper))
        read(upper)

    assert aliasing(steps) == []
    assert aliasing(lambda lower, upper: (steps(lower, upper), fill(lower), read(upper))) == ["upper"]


def test_what_only_a_dynamic_write_may_have_written_is_read_through() -> None:
    assert aliasing(lambda lower, upper: (fill(somewhere(upper)), fill(lower), read(upper))) == []


def test_a_dynamic_read_is_wrong_if_no_place_is_left() -> None:
    def steps(lower: Any, upper: Any) -> None:
        fill(upper)
        fill(lower)
        read(somewhere(upper))
        fill(upper)
        read(somewhere(lower))
        read(somewhere(lower[:, 3:6]))
        read(somewhere(upper))

    assert aliasing(steps) == []
    wrong = [lambda t: somewhere(t[:, 4:8], 2), lambda t: t[:, 4:8].select(1, index())]
    for view in wrong:
        assert aliasing(lambda lower, upper, view=view: (steps(lower, upper), read(view(lower)))) == ["lower"]


def test_a_copy_that_drops_rows_may_have_written_all_of_them() -> None:
    def kernel(x):
        rows, lower, upper = fresh((4, 1), nl.int32), fresh(**LOWER), fresh(**UPPER)
        for tile in (rows, lower):
            fill(tile)
        nisa.dma_copy(dst=upper, src=x.vector_select(0, rows), oob_mode=nisa.oob_mode.skip)
        read(lower)
        fill(upper)
        nisa.dma_copy(dst=lower, src=x.vector_select(0, rows), oob_mode=nisa.oob_mode.skip)
        read(upper)
        return x

    assert outcome(kernel) == []


def test_reading_through_a_tile_that_is_written_somewhere() -> None:
    def kernel(x):
        whole, half = fresh(address=(0, 0)), fresh((4, 8), nl.uint16, name="half", address=(0, 20))
        fill(somewhere(whole))
        read(half[:, 0:6])
        read(somewhere(half))
        return x

    compiled = nki.jit(kernel).compiled(Options(), (X,), {})
    assert outcome(kernel) == [] and "half" in compiled.poisoned

    def beside(x):
        half = fresh((4, 8), nl.uint16, address=(0, 20))
        fill(fresh(address=(0, 0)))
        read(somewhere(half[:, 6:8]))
        return x

    with pytest.raises(errors.UninitializedReadError):
        nki.simulate(beside)(X)
