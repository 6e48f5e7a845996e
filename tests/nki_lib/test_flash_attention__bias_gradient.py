"""The gradient of flash attention's bias: against float64 autograd of code written out here, alone and with all else.

How PyTorch sees it is in `test_flash_attention__bias_training.py`.

How far it may be off, with u = 2^-24, and w for half a unit in the last place of the tensors' type: a score is a sum of
D products no larger in all than a, then joined by a bias: off by (4 sqrt(D) + 3) u a, which the exponential makes the
relative error of a weight P, beside 12 u of its own and of its normalisation and the w it is stored with. With
s = |grad| |v|^T + sum(|grad| P |v|) + |grad of the log sum exp|, the gradient of a score, P (grad v^T - sum(grad out)
+ grad of the log sum exp), is off by the sum of these errors and those of the sums over D and Sk, times P s. What is
added over the dimensions in which the bias was repeated adds these bounds, and 4 sqrt(n) u times the sizes of its n
terms; the result is stored in the type of the bias.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402

from nki_lib.attention.flash_attention import launches  # noqa: E402
from nki_lib.attention.flash_attention.api import flash_attention  # noqa: E402

UNIT = 2.0**-24
TYPES = (torch.float32, torch.bfloat16)


def random(*shape: int, dtype: Any = torch.float32, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator).to(dtype)


def tensors(
    heads: tuple[int, int],
    lengths: tuple[int, int],
    depth: int = 8,
    batch: int = 1,
    dtype: Any = torch.float32,
) -> list[Tensor]:
    q = random(batch, heads[0], lengths[0], depth, dtype=dtype)
    return [q, *(random(batch, heads[1], lengths[1], depth, dtype=dtype, seed=s) for s in (1, 2))]


# ---- the truth, and how far from it -------------------------------------------------------------------------------


def hidden_keys(batch: int, queries: int, keys: int, given: dict[str, Any]) -> Tensor:
    """Where a query may not see a key: [B, 1, Sq, Sk]."""
    place = torch.arange(queries)[:, None] + keys - queries
    key = torch.arange(keys)[None, :]
    hidden = torch.zeros(batch, 1, queries, keys, dtype=torch.bool)
    if given.get("causal"):
        hidden = hidden | (key > place)
    if given.get("window"):
        hidden = hidden | (key <= place - given["window"])
    if given.get("key_padding_mask") is not None:
        hidden = hidden | ~given["key_padding_mask"][:, None, None, :]
    if given.get("q_segment_ids") is not None:
        hidden = hidden | (
            given["q_segment_ids"][:, None, :, None] != given["kv_segment_ids"][:, None, None, :]
        )
    return hidden


def truth(q: Tensor, k: Tensor, v: Tensor, **given: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """In float64: the attention, the log sum exp (0 where there is none), the weights, the largest size of a score."""
    q, k, v, bias = (x.double() for x in (q, k, v, given["bias"]))
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scale, cap = given.get("scale"), given.get("softcap")
    scale = q.shape[3] ** -0.5 if scale is None else scale
    scores = scale * torch.einsum("bhqd,bhkd->bhqk", q, k)
    size = abs(scale) * torch.einsum("bhqd,bhkd->bhqk", q.abs(), k.abs()).amax() + (cap or 0.0)
    if cap is not None:
        scores = cap * torch.tanh(scores / cap)
    scores = scores + bias
    size = size + bias.abs().nan_to_num(posinf=0.0).amax()
    scores = torch.where(hidden_keys(q.shape[0], *scores.shape[2:], given), float("-inf"), scores)
    sinks = given.get("sinks")
    sinks = torch.full((q.shape[1],), float("-inf")) if sinks is None else sinks
    sinks = sinks.double()[None, :, None, None]
    top = torch.maximum(scores.detach().amax(-1, keepdim=True), sinks).nan_to_num(neginf=0.0)
    parts = torch.exp(scores - top)
    total = parts.sum(-1, keepdim=True) + torch.exp(sinks - top)
    blind = total == 0
    total = torch.where(blind, 1.0, total)
    weights = parts / total
    lse = torch.where(blind, 0.0, top + torch.log(total))[..., 0]
    return weights @ v, lse, weights, size


def check(q: Tensor, k: Tensor, v: Tensor, with_lse: bool = False, **given: Any) -> Tensor:
    """Compare the gradient of the bias with the truth, those of the rest with the bits without it; return it."""
    bias = given["bias"].detach().requires_grad_()
    given["bias"] = bias
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    out, lse = flash_attention(*leaves, return_lse=True, **given)
    grad, grad_lse = random(*out.shape, seed=3).to(out.dtype), random(*lse.shape, seed=4) * with_lse
    grads = (grad, grad_lse) if with_lse else (grad,)
    *others, found = torch.autograd.grad((out, lse)[: len(grads)], [*leaves, bias], grads, retain_graph=True)
    given["bias"] = bias.detach()
    again = flash_attention(*leaves, return_lse=True, **given)[: len(grads)]
    assert all(map(torch.equal, others, torch.autograd.grad(again, leaves, grads)))
    assert found.shape == bias.shape and found.dtype == bias.dtype and found.is_contiguous()
    exact, bound = exact_and_bound(q, k, v, grad.double(), grad_lse.double(), given)
    error = (found.double() - exact).abs()
    assert (error <= bound).all(), f"{(error / bound).max():.2f} times the bound"
    return found


def exact_and_bound(
    q: Tensor, k: Tensor, v: Tensor, grad: Tensor, grad_lse: Tensor, given: dict[str, Any]
) -> tuple[Tensor, Tensor]:
    """The gradient of the bias in float64, and what each element may be off by."""
    bias = given["bias"].double().requires_grad_()
    out, lse, weights, size = truth(q, k, v, **given | {"bias": bias})
    (exact,) = torch.autograd.grad((out * grad).sum() + (lse * grad_lse).sum(), bias)
    weights, size = weights.detach(), size.detach()
    values = v.double().abs().repeat_interleave(q.shape[1] // v.shape[1], 1)
    grad = grad.abs()
    s = grad @ values.mT + (grad * (weights @ values)).sum(-1, keepdim=True) + grad_lse.abs()[..., None]
    depth, keys = q.shape[3], k.shape[2]
    stored, given_type = torch.finfo(q.dtype).eps / 2, torch.finfo(given["bias"].dtype)
    relative = 4 * ((4 * depth**0.5 + 3) * UNIT * size + 12 * UNIT)
    relative = relative + 8 * (depth**0.5 + keys**0.5) * UNIT + 4 * stored
    terms = weights * s
    relative = relative + 4 * (terms.numel() / max(bias.numel(), 1)) ** 0.5 * UNIT
    bound = (relative * terms).sum_to_size(bias.shape) if terms.numel() else torch.zeros_like(exact)
    return exact, bound + given_type.eps / 2 * exact.abs() + given_type.tiny * given_type.eps + 2.0**-126


# ---- shapes, and everything else ----------------------------------------------------------------------------------

FULL = (2, 4, 130, 140)
BIASES = {
    "full": FULL,
    "shared by the batch": (1, 4, 130, 140),
    "heads": (4, 130, 140),
    "one head": (2, 1, 130, 140),
    "queries and keys": (130, 140),
    "padding": (2, 1, 1, 140),
    "keys": (140,),
    "queries": (130, 1),
    "a number a head": (4, 1, 1),
    "a number a batch element": (2, 1, 1, 1),
    "one": (1,),
    "scalar": (),
}


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("kind", BIASES)
def test_shapes(kind: str, causal: bool) -> None:
    sinks = random(4, seed=5)
    check(*tensors((4, 2), FULL[2:], batch=2), bias=random(*BIASES[kind]), causal=causal, sinks=sinks)


@st.composite
def extras(draw: st.DrawFn, batch: int, heads: int, lengths: tuple[int, int]) -> dict[str, Any]:
    """A bias, and any of the other arguments."""
    seed = draw(st.integers(0, 9))
    shape = [size if draw(st.booleans()) else 1 for size in (batch, heads, *lengths)]
    bias = random(*shape[draw(st.integers(0, 4)) :], seed=seed)
    if draw(st.booleans()):
        bias = torch.where(bias < -1, float("-inf"), bias)
    given: dict[str, Any] = {
        "bias": bias.to(draw(st.sampled_from((*TYPES, torch.float16)))),
        "causal": draw(st.booleans()),
        "scale": draw(st.sampled_from((None, 0.3, -0.3, 0.0))),
        "window": draw(st.sampled_from((None, 1, 40, 200))),
        "softcap": draw(st.sampled_from((None, 1.0, 30.0))),
    }
    if draw(st.booleans()):
        given["sinks"] = random(heads, seed=seed)
    if draw(st.booleans()):
        given["key_padding_mask"] = random(batch, lengths[1], seed=seed) < draw(st.sampled_from((-9.0, 0.5)))
    if draw(st.booleans()):
        for name, length in zip(("q_segment_ids", "kv_segment_ids"), lengths):
            given[name] = random(batch, length, seed=seed).round().int()
    return given


@settings(max_examples=20)
@given(data=st.data())
def test_everything_together(data: st.DataObject) -> None:
    heads = data.draw(st.sampled_from(((1, 1), (4, 2), (3, 1), (2, 2))))
    lengths = tuple(data.draw(st.sampled_from((1, 5, 30, 128, 140, 150))) for _ in range(2))
    batch = data.draw(st.integers(1, 2))
    given_ones = data.draw(extras(batch, heads[0], lengths))
    inputs = tensors(heads, lengths, 8, batch, data.draw(st.sampled_from(TYPES)))
    check(*inputs, with_lse=data.draw(st.booleans()), **given_ones)


@pytest.mark.parametrize(
    "given_ones", [{}, {"causal": True}, {"causal": True, "window": 90}, {"window": 600}], ids=str
)
@pytest.mark.parametrize("lengths", [(300, 1100), (700, 520)], ids=str)
def test_several_chunks(lengths: tuple[int, int], given_ones: dict[str, Any]) -> None:
    """Blocks after the diagonal and before the window are skipped: their gradient is zero, and is written."""
    found = check(*tensors((1, 1), lengths), bias=random(*lengths), **given_ones)
    hidden = hidden_keys(1, *lengths, given_ones)[0, 0]
    assert not found[hidden].any() and (found[~hidden] != 0).float().mean() > 0.99


@pytest.mark.parametrize("depth", [192, 256])
def test_wide_heads(depth: int) -> None:
    for dtype in TYPES:
        found = check(*tensors((1, 1), (140, 530), depth, dtype=dtype), bias=random(140, 530), causal=True)
        assert not torch.equal(found, found.bfloat16().float())  # float32, whatever the tensors are


@pytest.mark.parametrize("shape", [(2, 400, 300), (2, 1, 300), (1, 400, 1), (400, 300), (1,)], ids=str)
@pytest.mark.parametrize("given_ones", [{"causal": True}, {"window": 70, "softcap": 3.0}, {}], ids=str)
def test_queries_in_pieces(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], given_ones: dict[str, Any]
) -> None:
    """Several launches for one key head: each adds its part, and only its part."""
    inputs, bias = tensors((2, 1), (400, 300), 16), random(*shape)
    whole = check(*inputs, bias=bias, **given_ones)
    for tiles in (4, 1):
        per_tile = 2 * 4 * (16 + 128) + 4 * 16
        share = tiles * per_tile / launches.nl.tile_size.sbuf_fmax_bytes
        monkeypatch.setattr(launches, "QUERY_SHARE", share * 1.01)
        assert torch.allclose(check(*inputs, bias=bias, **given_ones), whole, atol=1e-4)


def test_rows_that_see_nothing() -> None:
    inputs = tensors((2, 1), (150, 140), batch=2)
    seen = torch.ones(2, 140, dtype=torch.bool)
    seen[1] = False
    found = check(*inputs, with_lse=True, bias=random(2, 2, 150, 140), key_padding_mask=seen)
    assert not found[1].any() and found[0].any()
    bias = random(150, 140)
    bias[7] = float("-inf")
    found = check(*inputs, with_lse=True, bias=bias)
    assert not found[7].any() and found[8].any()
    found = check(*inputs, bias=random(150, 140), causal=True)
    assert (
        not found[:10].any() and found[10:].any(1).sum() >= 139
    )  # the first of them sees one key, at weight 1


def test_nothing_to_attend_to() -> None:
    for lengths in ((0, 5), (5, 0)):
        q, k, v = tensors((2, 1), lengths)
        bias = torch.zeros(2, 1, 1, requires_grad=True)
        (found,) = torch.autograd.grad(flash_attention(q, k, v, bias=bias).sum(), bias)
        assert torch.equal(found, torch.zeros(2, 1, 1))


def test_only_the_bias_is_trained() -> None:
    """By every front door, with the same bits; a bias seen through a view gets its gradient where it lives."""
    q, k, v = tensors((2, 1), (20, 30))
    table = random(30, 20, 2).requires_grad_()
    operator = torch.ops.nki_lib.flash_attention
    found = [
        torch.autograd.grad(function(q, k, v, bias=table.permute(2, 1, 0)).sum(), table)[0]
        for function in (flash_attention, operator)
    ]
    assert torch.equal(*found) and found[0].any()


def test_a_shift_of_all_scores_changes_nothing() -> None:
    """Without a sink, the softmax does not see what is added to a whole row: the gradient is zero but for rounding."""
    q, k, v = tensors((2, 1), (20, 30))
    bias = torch.zeros(20, 1, requires_grad=True)
    (found,) = torch.autograd.grad((flash_attention(q, k, v, bias=bias) ** 2).sum(), bias)
    assert found.abs().max() < 1e-5


@pytest.mark.slow
def test_the_largest_launch_fits() -> None:
    """As many queries as one launch takes, of the widest heads."""
    for dtype in TYPES:
        q, k, v = tensors((1, 1), (2560, 600), 256, dtype=dtype)
        bias = torch.zeros(1, 600, requires_grad=True)
        flash_attention(q, k, v, bias=bias, softcap=9.0).sum().backward()
        assert bias.grad is not None and bias.grad.isfinite().all()
