"""Values of flex attention: against float64 and PyTorch's own, over recipes, BlockMasks, shapes, types and layouts."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn.attention.flex_attention import BlockMask, and_masks, create_block_mask  # noqa: E402
from torch.nn.attention.flex_attention import flex_attention as pytorch_flex_attention  # noqa: E402

from nki_lib.attention.flex_attention import recipes  # noqa: E402
from nki_lib.attention.flex_attention.api import flex_attention  # noqa: E402
from nki_lib.attention.flex_attention.reference import attention  # noqa: E402
from tests.nki_lib.format_bounds import DTYPES, UNIT  # noqa: E402


def inputs(
    batch: int,
    heads: tuple[int, int],
    lengths: tuple[int, int],
    depth: int,
    dtype: Any = torch.float32,
    spread: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v of normal numbers; heads are (Hq, Hkv), lengths (Sq, Sk). `spread` widens the logits."""
    generator = torch.Generator().manual_seed(batch + 7 * heads[0] + 31 * lengths[0] + 101 * lengths[1])
    q = torch.randn(batch, heads[0], lengths[0], depth, generator=generator) * spread
    k, v = (torch.randn(batch, heads[1], lengths[1], depth, generator=generator) for _ in range(2))
    return q.to(dtype), k.to(dtype), v.to(dtype)


def check(q: Tensor, k: Tensor, v: Tensor, score: Any = None, mask: Any = None, **options: Any) -> Tensor:
    """Run the operator, compare with float64 within a bound derived from the formats, return the result.

    As in `attention_bounds`: scores are off by (4 sqrt(D) + 3) u times their magnitude, and by 4 u of the largest after
    each of at most three recipes, none of which has a slope above 1; the weights by that and 12 u more, and by their
    storage; sums by 8 sqrt(n) u; the result by its storage.
    """
    found = flex_attention(q, k, v, score_mod=score, mask_mod=mask, **options)
    assert found.shape == q.shape and found.dtype == q.dtype and found.is_contiguous()
    if mask is None and "block_mask" in options:
        mask = options["block_mask"].mask_mod
    wide = [t.double() for t in (q, k, v)]
    scale = options.get("scale")
    exact = attention(*wide, score_mod=score, mask_mod=mask, scale=scale)
    mixed = attention(wide[0], wide[1], wide[2].abs(), score_mod=score, mask_mod=mask, scale=scale)
    if exact.numel() == 0 or k.shape[2] == 0:
        assert not found.any()
        return found
    factor = abs(q.shape[3] ** -0.5 if scale is None else scale)
    repeated = wide[1].repeat_interleave(q.shape[1] // k.shape[1], 1).abs()
    magnitude = factor * (wide[0].abs() @ repeated.transpose(-1, -2)).amax(-1, keepdim=True)
    moved = 12 * UNIT * (magnitude + max(q.shape[2], k.shape[2])) if score is not None else 0.0
    weight = (4 * q.shape[3] ** 0.5 + 3) * UNIT * magnitude + moved + 12 * UNIT
    narrow = torch.finfo(q.dtype)
    stored = narrow.eps / 2
    sums = 8 * k.shape[2] ** 0.5 * UNIT + 2 * UNIT
    bound = (2 * weight + sums + stored) * mixed + stored * exact.abs() + narrow.tiny
    error = (found.double() - exact).abs()
    assert (error <= bound).all(), f"{(error / bound).max():.2f} times the bound"
    return found


def documents(length: int, mean: int = 40) -> Tensor:
    """Ids of consecutive documents, none of them small numbers."""
    generator = torch.Generator().manual_seed(length)
    return (torch.rand(length, generator=generator) < 1 / mean).cumsum(0) + 10**9


MASKS: dict[str, Any] = {
    "none": lambda b, n: None,
    "causal": lambda b, n: recipes.causal(),
    "causal, moved": lambda b, n: recipes.causal(-5),
    "window": lambda b, n: recipes.sliding_window(17),
    "causal window": lambda b, n: recipes.causal() & recipes.sliding_window(33),
    "documents": lambda b, n: recipes.document_mask(documents(n)),
    "documents by batch": lambda b, n: recipes.document_mask(
        torch.stack([documents(n, i + 9) for i in range(max(b, 1))])[:b]
    ),
    "causal documents": lambda b, n: recipes.causal() & recipes.document_mask(documents(n)),
    "prefix": lambda b, n: recipes.prefix_lm(21),
    "prefix by batch": lambda b, n: recipes.prefix_lm(torch.arange(b) * 30 + 3),
}
SCORES: dict[str, Any] = {
    "none": lambda h: None,
    "alibi": lambda h: recipes.alibi([-(2.0 ** -(i + 1)) for i in range(h)]),
    "softcap": lambda h: recipes.softcap(1.5),
    "alibi, softcap": lambda h: recipes.alibi(torch.linspace(0.1, 1, h)) >> recipes.softcap(5),
    "softcap, alibi": lambda h: recipes.softcap(5.0) >> recipes.alibi(torch.linspace(0.1, 1, h)),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("lengths", [(260, 260), (130, 540)], ids=str)
def test_masks(mask: str, lengths: tuple[int, int]) -> None:
    check(*inputs(2, (2, 1), lengths, 16), None, MASKS[mask](2, max(lengths)))


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
def test_scores(score: str, dtype: Any) -> None:
    check(*inputs(2, (4, 2), (150, 200), 64, dtype), SCORES[score](4), recipes.causal())


@st.composite
def calls(draw: st.DrawFn) -> dict[str, Any]:
    """Small calls of every kind."""
    key_heads = draw(st.integers(1, 2))
    return {
        "batch": draw(st.integers(0, 2)),
        "heads": (key_heads * draw(st.integers(1, 2)), key_heads),
        "lengths": (draw(st.integers(0, 140)), draw(st.integers(0, 140))),
        "depth": draw(st.sampled_from((1, 3, 16, 128))),
        "dtype": draw(st.sampled_from(DTYPES)),
        "spread": draw(st.sampled_from((0.0, 1.0, 20.0))),
    }


def transposed(x: Tensor) -> Tensor:
    """The same values, lying as [B, S, H, D]."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


@settings(max_examples=15, deadline=None)
@given(
    call=calls(),
    score=st.sampled_from(sorted(SCORES)),
    mask=st.sampled_from(sorted(MASKS)),
    scale=st.sampled_from((None, 0.125, -0.3, 0.0)),
    layout=st.sampled_from((lambda x: x, transposed)),
)
def test_any_call(call: dict[str, Any], score: str, mask: str, scale: float | None, layout: Any) -> None:
    q, k, v = inputs(**call)
    made = MASKS[mask](call["batch"], max(*call["lengths"], 1))
    check(layout(q), layout(k), layout(v), SCORES[score](call["heads"][0]), made, scale=scale)


def striped(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    """No recipe: depends on everything, leaves some queries without keys."""
    return ((q_idx + h) // 50 >= kv_idx // 50) & ((q_idx - kv_idx < 130) | (kv_idx < b)) & (q_idx % 7 > 0)


@settings(max_examples=6, deadline=None)
@given(
    size=st.sampled_from((16, 48, 128, (128, 32), (40, 200), (256, 1024))),
    lengths=st.sampled_from(((300, 300), (70, 530), (1, 90))),
    batch=st.sampled_from((None, 2)),
    heads=st.sampled_from((None, 4)),
    dtype=st.sampled_from(DTYPES),
)
def test_block_masks_of_functions(size: Any, lengths: Any, batch: Any, heads: Any, dtype: Any) -> None:
    def mask_mod(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return striped(b if batch else 0, h if heads else 0, q_idx, kv_idx)

    block_mask = create_block_mask(mask_mod, batch, heads, *lengths, device="cpu", BLOCK_SIZE=size)
    check(*inputs(2, (4, 2), lengths, 16, dtype), block_mask=block_mask)


@pytest.mark.parametrize("size", [32, 128])
def test_block_masks_of_recipes(size: int) -> None:
    """The recipe is found in the BlockMask; tiles of its values, and passing it again, change nothing."""
    q, k, v = inputs(2, (2, 1), (280, 280), 16)
    mask = recipes.causal() & recipes.document_mask(documents(280))
    found = [
        check(q, k, v, block_mask=create_block_mask(mod, None, None, 280, 280, device="cpu", BLOCK_SIZE=size))
        for mod in (mask, and_masks(mask))
    ]
    block_mask = create_block_mask(and_masks(mask), None, None, 280, 280, device="cpu", BLOCK_SIZE=size)
    found.append(check(q, k, v, None, mask, block_mask=block_mask))
    assert all(torch.equal(found[0], other) for other in found[1:])


def test_blocks_are_believed() -> None:
    """Empty blocks are skipped and full ones not masked, whatever the function would say of them, as in PyTorch."""
    counts = torch.ones(1, 1, 2, dtype=torch.int32)
    partial = torch.tensor([[[[0, 0], [1, 0]]]], dtype=torch.int32)
    full = torch.tensor([[[[1, 0], [0, 0]]]], dtype=torch.int32)
    mask = recipes.causal()
    q, k, v = inputs(1, (1, 1), (64, 64), 8)
    block_mask = BlockMask.from_kv_blocks(
        counts, partial, counts, full, BLOCK_SIZE=32, mask_mod=mask, seq_lengths=(64, 64)
    )
    found = flex_attention(q, k, v, block_mask=block_mask)
    rows = torch.arange(64)
    seen = (rows[:, None] >= rows) | (rows[:, None] < 32) & (rows >= 32)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    assert torch.allclose(found, expected, atol=1e-6)
    only = BlockMask.from_kv_blocks(counts, partial, BLOCK_SIZE=32, mask_mod=mask, seq_lengths=(64, 64))
    expected[:, :, 32:] = torch.nn.functional.scaled_dot_product_attention(
        q[:, :, 32:], k[:, :, 32:], v[:, :, 32:], is_causal=True
    )
    assert torch.allclose(flex_attention(q, k, v, block_mask=only)[:, :, 32:], expected[:, :, 32:], atol=1e-6)


def test_queries_without_keys_are_zero() -> None:
    q, k, v = inputs(1, (2, 1), (300, 300), 8)
    found = check(q, k, v, recipes.softcap(2.0), recipes.causal(-150))
    assert not found[:, :, :150].any() and found[:, :, 150:].all()
    block_mask = create_block_mask(lambda b, h, q, k: q < 0, None, None, 300, 300, device="cpu")
    assert not check(q, k, v, block_mask=block_mask).any()


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_same_objects_and_special_values_in_pytorch(value: float) -> None:
    """PyTorch's flex_attention takes the same recipes; NaN and infinities spread alike."""
    score = recipes.alibi([0.5, -0.25]) >> recipes.softcap(30.0)
    mask = recipes.causal() & recipes.sliding_window(9)
    block_mask = create_block_mask(mask, None, None, 30, 30, device="cpu")
    for name in ("", "q", "k", "v"):
        tensors = dict(zip("qkv", inputs(1, (2, 1), (30, 30), 8)))
        if name:
            tensors[name][0, 0, 7, 3] = value
        theirs = pytorch_flex_attention(
            *tensors.values(), score_mod=score, block_mask=block_mask, enable_gqa=True
        )
        ours = flex_attention(*tensors.values(), score_mod=score, mask_mod=mask)
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5, equal_nan=True), name


def test_huge_logits_pick_the_largest() -> None:
    q, k, v = inputs(1, (1, 1), (30, 200), 16, spread=1e4)
    best = (q @ k.transpose(-1, -2)).masked_fill(torch.ones(30, 200).triu(1).bool(), -torch.inf).argmax(-1)
    assert torch.allclose(flex_attention(q, k, v, mask_mod=recipes.causal()), v[0, 0][best], rtol=1e-6)


def test_expanded_inputs() -> None:
    q, k, v = inputs(1, (4, 1), (40, 40), 16)
    check(q.expand(2, -1, -1, -1), k.expand(2, 4, -1, -1), v.expand(2, 4, -1, -1), None, recipes.causal())


def test_keys_that_do_not_fit_are_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from nki_lib.attention.flex_attention import loading

    q, k, v = inputs(1, (1, 1), (200, 1700), 16)
    resident = check(q, k, v)
    monkeypatch.setattr(loading, "RESIDENT_SHARE", 10**6)
    monkeypatch.setattr(loading, "HELD_CHUNKS", 2)
    assert torch.equal(check(q, k, v), resident)
