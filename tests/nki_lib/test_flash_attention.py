"""Values of flash attention: against float64, over shapes, layouts, types and flags."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402

import nki_lib  # noqa: E402
from nki_lib.attention.flash_attention import loading, order  # noqa: E402
from tests.nki_lib.attention_bounds import exact_and_bound  # noqa: E402
from tests.nki_lib.format_bounds import DTYPES  # noqa: E402


def inputs(
    batch: int,
    heads: tuple[int, int],
    lengths: tuple[int, int],
    depth: int,
    dtype: Any = torch.float32,
    spread: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v of normal numbers; heads are (Hq, Hkv), lengths (Sq, Sk). `spread` widens the logits."""
    generator = torch.Generator().manual_seed(
        batch + 7 * heads[0] + 31 * lengths[0] + 101 * lengths[1] + depth
    )
    q = torch.randn(batch, heads[0], lengths[0], depth, generator=generator) * spread
    k, v = (torch.randn(batch, heads[1], lengths[1], depth, generator=generator) for _ in range(2))
    return q.to(dtype), k.to(dtype), v.to(dtype)


def check(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None) -> Tensor:
    """Run the operator, compare with float64 within the derived bound, return the result."""
    found = nki_lib.flash_attention(q, k, v, causal=causal, scale=scale)
    assert found.shape == q.shape and found.dtype == q.dtype and found.is_contiguous()
    exact, bound = exact_and_bound(q, k, v, causal, scale)
    error = (found.double() - exact).abs()
    assert (error <= bound).all(), f"{(error / bound).max():.2f} times the bound"
    return found


# Around the sizes of a tile (128), a chunk (512) and a block (1024), square and not.
SHAPES = [
    (1, (1, 1), (128, 128), 128),
    (1, (1, 1), (129, 127), 64),
    (1, (2, 1), (300, 513), 32),
    (1, (1, 1), (257, 1025), 16),
    (1, (3, 1), (5, 2100), 128),
    (2, (4, 2), (1, 200), 64),
    (1, (1, 1), (200, 1), 8),
    (1, (1, 1), (1, 1), 1),
]


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_against_float64(shape: Any, dtype: Any, causal: bool) -> None:
    check(*inputs(*shape, dtype=dtype), causal=causal)


@st.composite
def calls(draw: st.DrawFn) -> dict[str, Any]:
    """Small calls of every kind."""
    key_heads = draw(st.integers(1, 2))
    return {
        "batch": draw(st.integers(0, 2)),
        "heads": (key_heads * draw(st.integers(1, 3)), key_heads),
        "lengths": (draw(st.integers(0, 150)), draw(st.integers(0, 150))),
        "depth": draw(st.sampled_from((1, 2, 3, 16, 40, 128))),
        "dtype": draw(st.sampled_from(DTYPES)),
        "spread": draw(st.sampled_from((0.0, 0.1, 1.0, 20.0))),
    }


def transposed(x: Tensor) -> Tensor:
    """The same values, lying as [B, S, H, D]: what a projection of a model leaves."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def padded(x: Tensor) -> Tensor:
    """The same values, with a gap after each row."""
    return torch.nn.functional.pad(x, (0, 3))[..., : x.shape[3]]


@given(
    call=calls(),
    causal=st.booleans(),
    scale=st.sampled_from((None, 1.0, 0.125, -0.3, 0.0)),
    layout=st.sampled_from((lambda x: x, transposed, padded)),
)
def test_any_call(call: dict[str, Any], causal: bool, scale: float | None, layout: Any) -> None:
    q, k, v = inputs(**call)
    check(layout(q), layout(k), layout(v), causal, scale)


def test_expanded_inputs() -> None:
    q, k, v = inputs(1, (4, 1), (40, 70), 16)
    check(q.expand(3, -1, -1, -1), k.expand(3, 4, -1, -1), v.expand(3, 4, -1, -1))
    check(q[:, :, :1].expand(-1, -1, 30, -1), k[:, :, :1].expand(-1, -1, 50, -1), v[:, :, :50], causal=True)


def test_as_accurate_as_pytorch() -> None:
    """Not only within the bound: no worse than twice PyTorch's own kernel in the same type, plus one rounding."""
    for dtype in DTYPES:
        q, k, v = inputs(1, (2, 2), (256, 256), 64, dtype)
        exact, _ = exact_and_bound(q, k, v, True, None)
        theirs = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        ours = nki_lib.flash_attention(q, k, v, causal=True)
        allowed = 2 * (theirs.double() - exact).abs().max() + torch.finfo(dtype).eps * exact.abs().max()
        assert (ours.double() - exact).abs().max() <= allowed


def test_queries_without_keys_are_zero() -> None:
    q, k, v = inputs(1, (2, 1), (10, 4), 8)
    found = check(q, k, v, causal=True)
    assert not found[:, :, :6].any() and found[:, :, 6:].all()
    assert not check(q, k[:, :, :0], v[:, :, :0]).any()


def test_first_causal_query_sees_one_key() -> None:
    q, k, v = inputs(1, (1, 1), (140, 140), 8)
    assert torch.allclose(check(q, k, v, causal=True)[0, 0, 0], v[0, 0, 0], rtol=1e-6)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_keys_that_do_not_fit_are_streamed(monkeypatch: pytest.MonkeyPatch, causal: bool) -> None:
    """Same tiles, same arithmetic, another order: same bits."""
    q, k, v = inputs(1, (1, 1), (500, 2600), 16)
    resident = check(q, k, v, causal)
    monkeypatch.setattr(loading, "RESIDENT_SHARE", 10**6)
    monkeypatch.setattr(loading, "HELD_CHUNKS", 2)
    monkeypatch.setattr(order, "GROUP_TILES", 3)
    assert torch.equal(check(q, k, v, causal), resident)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_special_values_pass_through_as_in_pytorch(value: float) -> None:
    for name in ("q", "k", "v"):
        tensors = dict(zip("qkv", inputs(1, (1, 1), (20, 20), 8)))
        tensors[name][0, 0, 7, 3] = value
        expected = torch.nn.functional.scaled_dot_product_attention(*tensors.values())
        found = nki_lib.flash_attention(*tensors.values())
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5, equal_nan=True), name


def test_huge_logits_pick_the_largest() -> None:
    q, k, v = inputs(1, (1, 1), (30, 200), 16, spread=1e4)
    best = (q @ k.transpose(-1, -2)).argmax(-1)
    assert torch.allclose(nki_lib.flash_attention(q, k, v), v[0, 0][best], rtol=1e-6)
