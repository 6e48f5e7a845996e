"""Gradients of flash attention: against float64 autograd, in eager mode, compiled, under autocast."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402

import nki_lib  # noqa: E402
from nki_lib.attention.flash_attention import launches  # noqa: E402
from nki_lib.attention.flash_attention.api import flash_attention  # noqa: E402
from tests.nki_lib.attention_bounds import attended, gradients_and_bounds, weighed  # noqa: E402
from tests.nki_lib.format_bounds import DTYPES  # noqa: E402
from tests.nki_lib.test_flash_attention__extras import extras, inputs  # noqa: E402


def check(q: Tensor, k: Tensor, v: Tensor, **chosen: Any) -> list[Tensor]:
    """Compare the gradients with float64 within the derived bounds, return them."""
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    out = flash_attention(*leaves, **chosen)
    grad = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out.dtype)
    found = torch.autograd.grad(out, leaves, grad)
    for name, mine, leaf, (exact, bound) in zip(
        "qkv", found, leaves, gradients_and_bounds(q, k, v, grad, chosen)
    ):
        assert mine.dtype == leaf.dtype and mine.shape == leaf.shape
        error = (mine.double() - exact).abs()
        assert (error <= bound).all(), f"d{name}: {(error / bound).max():.2f} times the bound"
    return list(found)


# Around the sizes of a tile (128) and a chunk (512), square and not.
SHAPES = [
    ((1, 1), (128, 128), 128),
    ((2, 1), (300, 513), 32),
    ((1, 1), (129, 1030), 8),
    ((3, 1), (200, 60), 16),
    ((1, 1), (1, 40), 64),
    ((1, 1), (1, 1), 1),
    ((1, 1), (140, 200), 192),
    ((2, 2), (40, 600), 256),
]


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_against_float64(shape: Any, causal: bool) -> None:
    for dtype in DTYPES if shape[2] in (32, 192) else DTYPES[:1]:
        check(*inputs(*shape, dtype=dtype), causal=causal)


@pytest.mark.parametrize("window", [1, 100, 700])
def test_window(window: int) -> None:
    check(*inputs((1, 1), (300, 1300), 16), causal=True, window=window)
    check(*inputs((1, 1), (300, 1300), 16), window=window)


@settings(max_examples=10)
@given(data=st.data())
def test_everything_together(data: st.DataObject) -> None:
    heads = data.draw(st.sampled_from(((1, 1), (4, 2), (2, 1))))
    lengths = (data.draw(st.integers(0, 140)), data.draw(st.integers(0, 140)))
    q, k, v = inputs(heads, lengths, 8, data.draw(st.sampled_from(DTYPES)), batch=2)
    chosen = data.draw(extras(2, heads[0], lengths))
    if q.numel() and k.numel():
        check(q, k, v, **chosen)
    else:
        leaves = [x.requires_grad_() for x in (q, k, v)]
        found = torch.autograd.grad(flash_attention(*leaves, **chosen).sum(), leaves)
        assert not any(x.any() for x in found)


@pytest.mark.parametrize("chosen", [{"causal": True}, {"window": 70, "softcap": 3.0}, {}], ids=str)
def test_queries_in_pieces(monkeypatch: pytest.MonkeyPatch, chosen: dict[str, Any]) -> None:
    """What does not fit into SBUF is done in several launches: the sums are rounded elsewhere."""
    q, k, v = inputs((2, 1), (400, 300), 16)
    whole = check(q, k, v, **chosen)
    for tiles in (4, 2, 1):
        per_tile = 2 * 4 * (16 + 128) + 4 * 16
        share = tiles * per_tile / launches.nl.tile_size.sbuf_fmax_bytes
        monkeypatch.setattr(launches, "QUERY_SHARE", share * 1.01)
        assert torch.allclose(check(q, k, v, **chosen)[0], whole[0], atol=1e-5)


@pytest.mark.slow
def test_the_largest_launch_fits() -> None:
    """As many queries as one launch takes, of the widest heads."""
    q, k, v = inputs((1, 1), (2560, 600), 256)
    q.requires_grad_()
    flash_attention(q, k, v, causal=True).sum().backward()
    assert q.grad is not None and not q.grad[:, :, :1960].any() and q.grad[:, :, 2000:].any()


@pytest.mark.parametrize("causal", [False, True])
def test_sinks_and_log_sum_exp(causal: bool) -> None:
    leaves = [x.requires_grad_() for x in (*inputs((4, 2), (50, 40), 8, batch=2), torch.randn(4))]
    wide = [x.detach().double().requires_grad_() for x in leaves]
    out, lse = flash_attention(*leaves[:3], causal=causal, sinks=leaves[3], return_lse=True)
    weights = torch.randn(out.shape)
    found = torch.autograd.grad((out * weights).sum() + (lse * weights[..., 0]).sum(), leaves)
    out = attended(*wide[:3], causal=causal, sinks=wide[3])
    lse = weighed(*wide[:2], causal=causal, sinks=wide[3])[1]
    exact = torch.autograd.grad((out * weights).sum() + (lse * weights[..., 0]).sum(), wide)
    for mine, theirs in zip(found, exact):
        assert torch.allclose(mine.double(), theirs, rtol=1e-5, atol=2e-6 * 90**0.5)


def test_only_the_log_sum_exp_is_used() -> None:
    leaves = [x.requires_grad_() for x in inputs((1, 1), (20, 30), 8)]
    _, lse = flash_attention(*leaves, return_lse=True)
    found = torch.autograd.grad(lse.sum(), leaves[:2])
    wide = [x.detach().double().requires_grad_() for x in leaves[:2]]
    exact = torch.autograd.grad(weighed(*wide)[1].sum(), wide)
    assert all(torch.allclose(a.double(), b, atol=1e-5) for a, b in zip(found, exact))


def test_every_front_door_gives_the_same_bits() -> None:
    """The operator without a log sum exp computes it again: same program, same bits, in every run."""
    leaves = [x.requires_grad_() for x in inputs((2, 1), (150, 160), 16)]
    first = torch.autograd.grad(flash_attention(*leaves, causal=True).sum(), leaves)
    operator = torch.ops.nki_lib.flash_attention
    for function in (flash_attention, operator, nki_lib.flash_attention):
        again = torch.autograd.grad(function(*leaves, causal=True).sum(), leaves)
        assert all(torch.equal(a, b) for a, b in zip(first, again))


def test_compiled() -> None:
    def loss(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor) -> Tensor:
        out, lse = flash_attention(q * 2, k, v, causal=True, window=9, sinks=sinks, return_lse=True)
        return (out * out).sum() + lse.sum()

    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=True)
    for length in (20, 33):
        leaves = [x.requires_grad_() for x in (*inputs((2, 1), (length, length), 16), torch.zeros(2))]
        eager = torch.autograd.grad(loss(*leaves), leaves)
        found = torch.autograd.grad(compiled(*leaves), leaves)
        assert all(torch.equal(a, b) for a, b in zip(eager, found))
    torch._dynamo.reset()


def test_autocast() -> None:
    q, k, v = (x.requires_grad_() for x in inputs((1, 1), (20, 30), 8))
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype=dtype):
            out = flash_attention(q, k.to(torch.bfloat16), v, causal=True)
        assert out.dtype == dtype
        (grad,) = torch.autograd.grad(out.sum(), q)
        assert grad.dtype == torch.float32 and grad.any()


def test_opcheck() -> None:
    q, k, v = (x.requires_grad_() for x in inputs((2, 1), (9, 12), 8))
    sinks, bias = torch.zeros(2, requires_grad=True), torch.zeros(9, 1)
    for tensors in ((q, k, v), (q, k, v, sinks, bias)):
        numbers = {"causal": True, "window": 4}
        torch.library.opcheck(torch.ops.nki_lib.flash_attention, tensors, numbers)
        torch.library.opcheck(torch.ops.nki_lib.flash_attention_with_lse, tensors, numbers)
    q, k, v = (x.detach() for x in (q, k, v))
    out, lse = flash_attention(q, k, v, return_lse=True)
    torch.library.opcheck(torch.ops.nki_lib.flash_attention_backward, (out, None, out, lse, q, k, v))


def test_exports_for_all_lengths() -> None:
    class Attention(torch.nn.Module):
        def forward(self, q: Tensor, k: Tensor) -> Tensor:
            return flash_attention(q, k, k, causal=True, window=5)

    q, k, _ = inputs((2, 1), (20, 30), 8)
    lengths = [{2: torch.export.Dim(name)} for name in ("queries", "keys")]
    module = torch.export.export(Attention(), (q, k), dynamic_shapes=tuple(lengths)).module()
    assert torch.equal(module(q[:, :, :11], k), flash_attention(q[:, :, :11], k, k, causal=True, window=5))
