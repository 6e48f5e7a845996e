"""Gradients of flex attention, eager and compiled, against float64 autograd of the reference."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention.flex_attention import create_block_mask  # noqa: E402

from nki import errors  # noqa: E402
from nki_lib.attention.flex_attention import recipes  # noqa: E402
from nki_lib.attention.flex_attention.api import flex_attention  # noqa: E402
from nki_lib.attention.flex_attention.reference import attention  # noqa: E402


def random(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


IDS = torch.arange(40) // 7
SCORE = recipes.alibi([0.1, 0.2, 0.3, -0.4]) >> recipes.softcap(3.0)
MASK = recipes.causal() & recipes.document_mask(IDS)


def function(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    """What MASK says, without a recipe."""
    return (q_idx >= kv_idx) & (IDS[q_idx] == IDS[kv_idx])


def ways() -> dict[str, dict[str, Any]]:
    """Three ways to pass the same mask."""
    made = [create_block_mask(m, None, None, 40, 40, device="cpu", BLOCK_SIZE=16) for m in (MASK, function)]
    return {"recipe": {"mask_mod": MASK}, "blocks": {"block_mask": made[0]}, "tiles": {"block_mask": made[1]}}


@pytest.mark.parametrize("way", ["recipe", "blocks", "tiles"])
def test_compiled_and_gradients(way: str) -> None:
    """Under `aot_eager` in one graph: the same bits forward and backward, which agree with float64."""
    options = ways()[way]

    def layer(q: Any, k: Any, v: Any) -> Any:
        return flex_attention(q * 2, k, v, score_mod=SCORE, **options) + 1

    tensors = [random(2, heads, 40, 16).requires_grad_() for heads in (4, 2, 2)]
    exact = [t.detach().double().requires_grad_() for t in tensors]
    grad = random(2, 4, 40, 16)
    expected = attention(exact[0] * 2, *exact[1:], score_mod=SCORE, mask_mod=MASK) + 1
    wanted = torch.autograd.grad(expected, exact, grad.double())
    torch._dynamo.reset()
    results = []
    for call in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        out = call(*tensors)
        results.append((out, *torch.autograd.grad(out, tensors, grad)))
        assert torch.allclose(out.double(), expected, atol=4e-6)
        for found, want in zip(results[-1][1:], wanted):
            assert (found - want).abs().max() <= 2e-6 * 40**0.5 * want.abs().max().clamp(min=1)
    assert all(torch.equal(a, b) for a, b in zip(*results))
    torch._dynamo.reset()


def test_half_precision_gradients() -> None:
    tensors = [random(1, heads, 40, 16, dtype=torch.bfloat16).requires_grad_() for heads in (4, 2, 2)]
    exact = [t.detach().double().requires_grad_() for t in tensors]
    grad = random(1, 4, 40, 16, dtype=torch.bfloat16)
    found = torch.autograd.grad(flex_attention(*tensors, score_mod=SCORE, mask_mod=MASK), tensors, grad)
    expected = attention(*exact, score_mod=SCORE, mask_mod=MASK)
    for mine, want in zip(found, torch.autograd.grad(expected, exact, grad.double())):
        assert mine.dtype == torch.bfloat16
        assert torch.allclose(mine.double(), want, rtol=2**-7, atol=1e-5)


def test_gradients_where_nothing_is_seen() -> None:
    q, k = (random(1, 1, 10, 8).requires_grad_() for _ in range(2))
    flex_attention(q, k, k, mask_mod=recipes.causal(-4)).sum().backward()
    assert q.grad is not None and q.grad[:, :, 5:].all() and not q.grad[:, :, :5].any()
    assert k.grad is not None and k.grad[:, :, :6].all() and not k.grad[:, :, 6:].any()
    empty = random(1, 1, 0, 8).requires_grad_()
    flex_attention(q, empty, empty).sum().backward()
    assert empty.grad is not None and empty.grad.shape == empty.shape


def test_tensors_of_recipes_have_no_gradient() -> None:
    q = random(1, 2, 4, 8)
    score = recipes.alibi(torch.ones(2, requires_grad=True))
    with pytest.raises(errors.NoBackwardError, match="tensors of recipes"):
        flex_attention(q, q, q, score_mod=score)
    with torch.no_grad():
        flex_attention(q, q, q, score_mod=score)
