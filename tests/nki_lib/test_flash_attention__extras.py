"""Windows, sinks, soft caps, biases, padding, segments and wide heads: against float64, alone and together."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402

from nki_lib.attention.flash_attention.api import flash_attention  # noqa: E402
from tests.nki_lib.attention_bounds import exact_and_bound, magnitude_of, weighed, widened  # noqa: E402
from tests.nki_lib.format_bounds import DTYPES, UNIT  # noqa: E402


def inputs(
    heads: tuple[int, int], lengths: tuple[int, int], depth: int, dtype: Any = torch.float32, batch: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(sum(lengths) + depth)
    q = torch.randn(batch, heads[0], lengths[0], depth, generator=generator)
    k, v = (torch.randn(batch, heads[1], lengths[1], depth, generator=generator) for _ in range(2))
    return q.to(dtype), k.to(dtype), v.to(dtype)


def check(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, **extras: Any) -> tuple[Tensor, Tensor]:
    """Run the operator, compare both results with float64 within the derived bounds, return them."""
    scale = extras.pop("scale", None)
    found, lse = flash_attention(q, k, v, causal=causal, scale=scale, return_lse=True, **extras)
    assert torch.equal(found, flash_attention(q, k, v, causal=causal, scale=scale, **extras))
    exact, bound = exact_and_bound(q, k, v, causal, scale, **extras)
    error = (found.double() - exact).abs()
    assert (error <= bound).all(), f"{(error / bound).max():.2f} times the bound"
    everything = widened(extras) | {"causal": causal, "scale": scale}
    exact = weighed(q.double(), k.double(), **everything)[1]
    size = magnitude_of(q, k, everything)[..., 0] + exact.abs().nan_to_num(posinf=0.0)
    bound = (4 * q.shape[3] ** 0.5 + 4 * k.shape[2] ** 0.5 + 12) * UNIT * (1 + size)
    assert ((lse == exact) | ((lse - exact).abs() <= bound)).all()
    return found, lse


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("window", [1, 2, 127, 300, 5000])
@pytest.mark.parametrize("lengths", [(300, 300), (140, 1400), (200, 30)], ids=str)
def test_window(window: int, causal: bool, lengths: tuple[int, int]) -> None:
    check(*inputs((1, 1), lengths, 16), causal=causal, window=window)


@pytest.mark.parametrize("depth", [129, 192, 256])
def test_wide_heads(depth: int) -> None:
    for dtype in DTYPES:
        check(*inputs((1, 1), (130, 520), depth, dtype), causal=True)


@st.composite
def extras(draw: st.DrawFn, batch: int, heads: int, lengths: tuple[int, int]) -> dict[str, Any]:
    """Any of the arguments beside q, k and v."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 9)))

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator)

    chosen: dict[str, Any] = {
        "causal": draw(st.booleans()),
        "scale": draw(st.sampled_from((None, 0.3, -0.3, 0.0))),
        "window": draw(st.sampled_from((None, 1, 40, 200))),
        "softcap": draw(st.sampled_from((None, 1.0, 30.0))),
    }
    if draw(st.booleans()):
        chosen["sinks"] = (uniform(heads) * 4).to(draw(st.sampled_from(DTYPES)))
    if draw(st.booleans()):
        full = (batch, heads, *lengths)
        bias = uniform(*(size if draw(st.booleans()) else 1 for size in full))
        bias = torch.where(bias < 0.2, float("-inf"), bias)[(0,) * draw(st.integers(0, 3))]
        chosen["bias"] = bias.to(draw(st.sampled_from(DTYPES)))
    if draw(st.booleans()):
        chosen["key_padding_mask"] = uniform(batch, lengths[1]) < draw(st.sampled_from((0.0, 0.3, 1.0)))
    if draw(st.booleans()):
        for name, length in zip(("q_segment_ids", "kv_segment_ids"), lengths):
            chosen[name] = (uniform(batch, length) * 3).to(torch.int32) * 2**29 - 2**30
    return chosen


@settings(max_examples=20)
@given(data=st.data())
def test_everything_together(data: st.DataObject) -> None:
    heads = data.draw(st.sampled_from(((1, 1), (4, 2), (2, 1))))
    lengths = (data.draw(st.integers(0, 140)), data.draw(st.integers(0, 140)))
    q, k, v = inputs(heads, lengths, 8, data.draw(st.sampled_from(DTYPES)), batch=2)
    chosen = data.draw(extras(2, heads[0], lengths))
    if not q.numel() or not k.numel():
        found, lse = flash_attention(q, k, v, return_lse=True, **chosen)
        expected = chosen["sinks"].float()[:, None] if "sinks" in chosen else torch.tensor(float("-inf"))
        assert not found.any() and torch.equal(lse, expected.expand(lse.shape))
        return
    check(q, k, v, **chosen)


def test_queries_that_see_nothing_are_zero() -> None:
    q, k, v = inputs((2, 1), (150, 140), 8, batch=2)
    seen = torch.ones(2, 140, dtype=torch.bool)
    seen[1] = False
    found, lse = check(q, k, v, key_padding_mask=seen)
    assert not found[1].any() and torch.isneginf(lse[1]).all() and found[0].all()
    hidden = torch.zeros(150, 1)
    hidden[7] = float("-inf")
    found, lse = check(q, k, v, bias=hidden)
    assert not found[:, :, 7].any() and torch.isneginf(lse[:, :, 7]).all() and found[:, :, 8].all()
    found, lse = check(q, k, v, key_padding_mask=seen, sinks=torch.tensor([2.0, -3.0]))
    assert not found[1].any() and torch.equal(lse[1, :, 0], torch.tensor([2.0, -3.0]))


def test_the_lowest_finite_bias_hides_only_beside_others() -> None:
    """What a model of Hugging Face adds: rows of it alone are averaged, as PyTorch does."""
    q, k, v = inputs((1, 1), (3, 600), 8)
    bias = torch.zeros(3, 600)
    bias[0, 300:] = bias[1] = torch.finfo(torch.float32).min
    found = flash_attention(q, k, v, bias=bias)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    assert torch.allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("sink", [float("-inf"), -1e30, 200.0, 1e30])
def test_extreme_sinks(sink: float) -> None:
    found, _ = check(*inputs((1, 1), (20, 30), 8), sinks=torch.tensor([sink]))
    assert bool(found.any()) == (sink < 0)


def test_not_a_number_passes_through() -> None:
    q, k, v = inputs((1, 1), (20, 20), 8)
    bias = torch.zeros(20, 20)
    bias[3, 4] = float("nan")
    found = flash_attention(q, k, v, bias=bias)
    assert found[0, 0, 3].isnan().all() and not found[0, 0, 4:].isnan().any()
