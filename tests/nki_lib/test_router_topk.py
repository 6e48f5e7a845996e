"""Choices, weights, losses and gradients of the router: against float64, and against the routers of Transformers."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402

from nki_lib.moe.router_topk.api import router_topk  # noqa: E402
from tests.nki_lib.format_bounds import DTYPES, UNIT, stored  # noqa: E402

INFINITY = float("inf")


def random(*shape: int, dtype: Any = torch.float32, spread: float = 2.0) -> Tensor:
    made = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape) + len(shape)))
    return (spread * made).to(dtype)


def keys(x: Tensor, options: dict[str, Any]) -> Tensor:
    """What experts are chosen by: logits, or sigmoids plus bias where the best groups are, else minus infinity."""
    if options["score"] != "sigmoid":
        return x
    result = x.sigmoid() if options.get("bias") is None else x.sigmoid() + options["bias"].to(x.dtype)
    if options.get("groups"):
        by_group = result.unflatten(1, (options["groups"], -1))
        best = by_group.topk(2, -1).values.sum(-1).sort(stable=True, descending=True).indices
        kept = torch.zeros(best.shape).scatter(1, best[:, : options["topk_groups"]], 1.0).bool()
        result = by_group.masked_fill(~kept[..., None], -INFINITY).flatten(1)
    return result


def exactly(x: Tensor, indices: Tensor, options: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """Weights of these experts and the losses, differentiable."""
    sigmoid = options["score"] == "sigmoid"
    scores = x.sigmoid() if sigmoid else x.softmax(1)
    weights = scores.gather(1, indices)
    if options.get("normalize", True) or options["score"] == "topk_softmax":
        weights = weights / (weights.sum(1, keepdim=True) + (1e-20 if sigmoid else 0))
    tokens = torch.nn.functional.one_hot(indices, x.shape[1]).to(x.dtype).sum(1).mean(0)
    shares = (scores / scores.sum(1, keepdim=True)).mean(0)
    balance = x.shape[1] * (tokens * shares).sum()
    return weights * options.get("scale", 1.0), balance, x.logsumexp(1).square().mean()


def check(x: Tensor, k: int, **options: Any) -> Tensor:
    """Compare with float64, return the indices.

    A weight is off by less than (2 max |x - top| + 4 sqrt(E) + 16) u of itself, as in `reduction_bounds.py`. Chosen
    keys are in order, and none that was left out is better, but for the error of a sigmoid in float32.
    """
    weights, indices, balance, z = router_topk(x, k, return_losses=True, **options)
    assert weights.dtype == x.dtype and indices.dtype == torch.int64 and weights.shape == (x.shape[0], k)
    plain = router_topk(x, k, **options)
    assert torch.equal(plain[0], weights) and torch.equal(plain[1], indices)
    wide = x.double()
    best = keys(wide, options)
    slack = 4 * UNIT if options["score"] == "sigmoid" else 0.0
    assert ((best.gather(1, indices) - best.topk(k, 1).values).abs() <= slack).all()
    assert (indices.sort(1).values.diff(dim=1) > 0).all()
    exact, true_balance, true_z = exactly(wide, indices, options)
    distance = wide.amax(1, keepdim=True) - wide.amin(1, keepdim=True)
    relative = (2 * distance + 4 * x.shape[1] ** 0.5 + 16) * UNIT
    assert ((weights.double() - exact).abs() <= stored(exact, relative * exact, x.dtype)).all()
    for found, true in ((balance, true_balance), (z, true_z)):
        assert found.dtype == torch.float32 and torch.allclose(found.double(), true, rtol=2e-6, atol=1e-6)
    return indices


OPTIONS: tuple[dict[str, Any], ...] = (
    {"score": "softmax"},
    {"score": "softmax", "normalize": False, "scale": 3.0},
    {"score": "topk_softmax"},
    {"score": "sigmoid"},
    {"score": "sigmoid", "normalize": False, "scale": 0.5},
)
GROUPED: dict[str, Any] = {"score": "sigmoid", "groups": 4, "topk_groups": 2, "scale": 2.5}


@given(data=st.data(), options=st.sampled_from(OPTIONS))
def test_any_call(data: st.DataObject, options: dict[str, Any]) -> None:
    tokens, experts = (
        data.draw(st.sampled_from((1, 2, 7, 130))),
        data.draw(st.sampled_from((1, 3, 8, 60, 128))),
    )
    x = random(tokens, experts, dtype=data.draw(st.sampled_from(DTYPES)))
    if data.draw(st.booleans()):
        x = x.T.contiguous().T
    if options["score"] == "sigmoid" and data.draw(st.booleans()):
        options = {**options, "bias": random(experts, spread=0.2)}
    check(x, data.draw(st.integers(1, min(experts, 32))), **options)


@pytest.mark.parametrize(
    ("experts", "groups", "kept", "k"),
    [(16, 4, 2, 3), (256, 8, 4, 8), (8, 4, 1, 2), (64, 32, 9, 12), (8, 2, 2, 4)],
)
def test_groups(experts: int, groups: int, kept: int, k: int) -> None:
    for bias in (None, random(experts, spread=0.3)):
        options = {**GROUPED, "groups": groups, "topk_groups": kept, "bias": bias}
        indices = check(random(50, experts), k, **options)
        assert ((indices // (experts // groups)).sort(1).values.diff(dim=1) > 0).sum(1).max() < kept


def test_largest_sizes_and_no_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    from nki_lib.moe.router_topk import op

    check(random(5, 512), 32, score="softmax")
    monkeypatch.setattr(op, "PIECE", 128)
    check(random(300, 16), 2, score="topk_softmax")
    weights, indices, balance, z = router_topk(random(0, 8), 2, return_losses=True)
    assert weights.shape == indices.shape == (0, 2) and balance == z == 0


@pytest.mark.parametrize("options", [*OPTIONS, GROUPED], ids=str)
def test_of_equal_experts_the_first_comes_first(options: dict[str, Any]) -> None:
    x = torch.randint(-2, 3, (64, 16), generator=torch.Generator().manual_seed(0)).float()
    indices = router_topk(x, 5, **options)[1]
    assert torch.equal(indices, keys(x, options).sort(stable=True, descending=True).indices[:, :5])


def test_special_logits_as_in_pytorch() -> None:
    x = random(6, 12)
    x[0, 3] = float("nan")
    x[1, 4] = INFINITY
    x[2, :9] = -INFINITY
    x[3, :] = -INFINITY
    x[4, 4] = -INFINITY
    for options in OPTIONS:
        weights, indices = router_topk(x, 4, **options)
        expected = exactly(x, indices, options)[0]
        assert ((indices >= 0) & (indices < 12)).all()
        assert (indices.sort(1).values.diff(dim=1) > 0).all()
        assert torch.allclose(weights, expected, rtol=1e-5, atol=1e-9, equal_nan=True)


@pytest.mark.parametrize(
    "options", [*OPTIONS, {**GROUPED, "bias": random(16, spread=0.3)}], ids=lambda o: o["score"]
)
def test_gradients_against_float64(options: dict[str, Any]) -> None:
    x, given = random(40, 16).requires_grad_(), random(40, 3)
    weights, indices, balance, z = router_topk(x, 3, return_losses=True, **options)
    wide = x.detach().double().requires_grad_()
    exact = exactly(wide, indices, options)
    for mine, true in zip(
        (weights.mul(given).sum(), balance, z), (exact[0].mul(given.double()).sum(), *exact[1:])
    ):
        (found,) = torch.autograd.grad(mine, x, retain_graph=True)
        (expected,) = torch.autograd.grad(true, wide, retain_graph=True)
        assert torch.allclose(found.double(), expected, rtol=2e-5, atol=1e-6)
    plain = router_topk(x, 3, **options)[0]
    both = [torch.autograd.grad(w.mul(given).sum(), x, retain_graph=True)[0] for w in (plain, weights)]
    assert torch.allclose(*both, atol=1e-7)


@pytest.mark.parametrize("options", [*OPTIONS, GROUPED], ids=str)
def test_whole_jacobians(options: dict[str, Any]) -> None:
    """One output after the other, in float64 by autograd of the formulas in `exactly`.

    The derivative of a share y_j by x_i, y_j (1 or 0 - y_i), has three factors below 1 that are off by r, the
    (2 max |x - top| + 4 sqrt(E) + 16) u of `check`: 3 r, times the scale. The balance is E times a mean of shares; of
    z it is 2 log sum y_i over two tokens, and |log sum| <= 1 + z.
    """
    x = (torch.linspace(-3, 3, 24).reshape(2, 12) * 7).sin().requires_grad_()
    weights, indices, balance, z = router_topk(x, 3, return_losses=True, **options)
    wide = x.detach().double().requires_grad_()
    exact = exactly(wide, indices, options)
    relative = (2 * 2 + 4 * 12**0.5 + 16) * UNIT
    sizes = (*[options.get("scale", 1.0)] * 6, 12, 1 + float(z.detach()))
    outputs = zip((*weights.flatten(), balance, z), (*exact[0].flatten(), *exact[1:]), sizes)
    for mine, true, size in outputs:
        (found,) = torch.autograd.grad(mine, x, retain_graph=True)
        (expected,) = torch.autograd.grad(true, wide, retain_graph=True)
        assert ((found.double() - expected).abs() <= 3 * relative * size).all()


def test_gradient_in_narrow_types() -> None:
    x = random(9, 16, dtype=torch.bfloat16).requires_grad_()
    weights, _, balance, z = router_topk(x, 3, return_losses=True)
    (found,) = torch.autograd.grad(weights.float().square().sum() + balance + z, x)
    assert found.dtype == torch.bfloat16 and found.isfinite().all() and found.any()
