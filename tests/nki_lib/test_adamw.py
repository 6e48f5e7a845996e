"""Steps of AdamW: against float64, over shapes, types and layouts; and the optimiser against PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from nki import errors  # noqa: E402
from nki_lib.optimizer.adamw import op  # noqa: E402
from nki_lib.optimizer.adamw.api import AdamW, adamw  # noqa: E402
from nki_lib.optimizer.adamw.kernel import adamw as kernel  # noqa: E402
from tests.nki_lib.format_bounds import UNIT, stored  # noqa: E402

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16


def random(*shape: int, dtype: Any = F32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape) + seed)).to(dtype)


def exactly(tensors: list[Tensor], step: int, options: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """New parameter and moments in float64, in the order in which Loshchilov and Hutter write a step."""
    param, grad, first, second = (t.detach().double() for t in tensors)
    lr, (beta1, beta2) = options.get("lr", 1e-3), options.get("betas", (0.9, 0.999))
    grad = grad / options.get("grad_scale", 1.0)
    first = first + (1 - beta1) * (grad - first)
    second = second + (1 - beta2) * (grad * grad - second)
    unbiased = first / (1 - beta1**step), second / (1 - beta2**step)
    update = unbiased[0] / (torch.sqrt(unbiased[1]) + options.get("eps", 1e-8))
    return param - lr * (update + options.get("weight_decay", 1e-2) * param), first, second


def check(tensors: list[Tensor], step: int, **options: Any) -> None:
    """One step in place, compared with float64; u is the unit roundoff of float32.

    A moment is a sum of two products: 6 u of their magnitudes, with the coefficients rounded. The quotient of first and
    root carries the relative error of the root, half of the second moment's, and 10 u; what is cancelled in the first
    moment counts with its full magnitude. The parameter adds 4 u of both its terms.
    """
    param, grad, first, _ = (t.detach().double() for t in tensors)
    moved, new_first, new_second = exactly(tensors, step, options)
    adamw(*tensors, step, **options)
    lr, (beta1, beta2) = options.get("lr", 1e-3), options.get("betas", (0.9, 0.999))
    scale = abs(options.get("grad_scale", 1.0))
    of_first = 6 * UNIT * (beta1 * first.abs() + (1 - beta1) * grad.abs() / scale)
    of_second = 6 * UNIT * new_second
    root = (new_second / (1 - beta2**step)).sqrt() + options.get("eps", 1e-8)
    rate = lr / (1 - beta1**step)
    moving = rate / root * (of_first + 16 * UNIT * new_first.abs())
    of_param = moving + 4 * UNIT * (param.abs() + (moved - param).abs())
    found = (tensors[0], *tensors[2:])
    for mine, exact, error in zip(found, (moved, new_first, new_second), (of_param, of_first, of_second)):
        assert ((mine.double() - exact).abs() <= stored(exact, error, mine.dtype)).all()


LAYOUTS = (
    lambda t: t,
    lambda t: t.mT.contiguous().mT,
    lambda t: nn.functional.pad(t, (1, 2))[..., 1:-2],
    lambda t: torch.stack([t, t], -1)[..., 0],
)
TYPES = ((F32, F32, F32), (BF16, BF16, F32), (BF16, BF16, BF16), (BF16, F32, F32), (F16, F16, F32))


@given(data=st.data(), types=st.sampled_from(TYPES), layout=st.sampled_from(LAYOUTS))
def test_any_step(data: st.DataObject, types: tuple[Any, Any, Any], layout: Any) -> None:
    shape = data.draw(st.sampled_from(((1, 1), (7, 3), (2, 64), (5, 130), (2, 3, 45))))
    param, grad, state = types
    tensors = [random(*shape, dtype=dtype, seed=i) for i, dtype in enumerate((param, grad, state, state))]
    tensors = [tensors[0], tensors[1], tensors[2] / 3, tensors[3].square()]
    which = data.draw(st.sampled_from(("all", "param", "grad", "exp_avg")))
    chosen = {"all": (0, 1, 2, 3), "param": (0,), "grad": (1,), "exp_avg": (2,)}[which]
    tensors = [layout(t) if i in chosen else t for i, t in enumerate(tensors)]
    options: dict[str, Any] = {"lr": data.draw(st.sampled_from((0.0, 1e-3, 0.3)))}
    options["weight_decay"] = data.draw(st.sampled_from((0.0, 0.1)))
    options["grad_scale"] = data.draw(st.sampled_from((1.0, 1024.0, -1.0)))
    options["betas"] = data.draw(st.sampled_from(((0.9, 0.999), (0.0, 0.5), (0.95, 0.98))))
    check(tensors, data.draw(st.sampled_from((1, 2, 1000))), **options)


def test_several_pieces_and_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    check([random(3, 90_000), random(3, 90_000, seed=1), *(torch.zeros(3, 90_000) for _ in range(2))], 1)
    monkeypatch.setattr(op, "PIECE", 256)
    check([random(650), random(650, seed=1), *(torch.zeros(650) for _ in range(2))], 1)


@pytest.mark.parametrize("shape", [(), (0,), (4, 0)])
def test_small_shapes(shape: tuple[int, ...]) -> None:
    check([torch.full(shape, 2.0), torch.full(shape, 0.5), torch.zeros(shape), torch.zeros(shape)], 1)


def test_a_gradient_of_zero_decays_only() -> None:
    param, zero = random(10), torch.zeros(10)
    expected = param * (1 - 0.1 * 0.5)
    adamw(param, zero, zero.clone(), zero.clone(), 1, lr=0.1, weight_decay=0.5)
    assert torch.allclose(param, expected, rtol=1e-6)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_special_values_stay_where_they_are(value: float) -> None:
    grad = random(300)
    grad[7] = value
    param, first, second = random(300), torch.zeros(300), torch.zeros(300)
    adamw(param, grad, first, second, 1)
    expected = torch.ones(300, dtype=torch.bool)
    expected[7] = False
    assert torch.equal(param.isfinite(), expected) and torch.equal(second.isfinite(), expected)


def test_neither_steps_nor_rates_stage_programs() -> None:
    kernel._cache.clear()
    tensors = [random(40), random(40), torch.zeros(40), torch.zeros(40)]
    for step in range(1, 5):
        adamw(*tensors, step, lr=0.1 / step, betas=(0.9, 1 - 0.1 / step), weight_decay=0.01 * step)
    assert len(kernel._cache) == 1


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(30, 40), nn.Tanh(), nn.Linear(40, 7))


def train(model: nn.Module, optimizer: Any, steps: range) -> None:
    """Steps on batches that depend on the number of the step; the rate falls."""
    for step in steps:
        optimizer.zero_grad()
        optimizer.step(lambda: loss_of(model, random(8, 30, seed=step)))  # noqa: B023
        for group in optimizer.param_groups:
            group["lr"] *= 0.95


def loss_of(model: nn.Module, x: Tensor) -> Tensor:
    loss = model(x).square().mean()
    loss.backward()
    return loss


def groups(model: nn.Module) -> list[dict[str, Any]]:
    weights = [p for p in model.parameters() if p.dim() == 2]
    return [
        {"params": weights, "weight_decay": 0.2},
        {"params": [p for p in model.parameters() if p.dim() == 1]},
    ]


@pytest.mark.parametrize("maximize", [False, True])
def test_twenty_steps_as_in_pytorch(maximize: bool) -> None:
    """Each step adds an error of a few u of a parameter's magnitude; 20 of them stay below 1e-5 of it."""
    ours, theirs = network(), network()
    train(ours, AdamW(groups(ours), lr=0.01, maximize=maximize), range(20))
    train(theirs, torch.optim.AdamW(groups(theirs), lr=0.01, maximize=maximize), range(20))
    for mine, true in zip(ours.parameters(), theirs.parameters()):
        assert torch.allclose(mine, true, rtol=1e-5, atol=1e-6)


def test_state_dicts_fit_both_optimisers() -> None:
    ours, theirs = network(), network()
    mine, torchs = AdamW(groups(ours), lr=0.01), torch.optim.AdamW(groups(theirs), lr=0.01)
    for model, optimizer in ((ours, mine), (theirs, torchs)):
        train(model, optimizer, range(3))
    one, other = mine.state_dict(), torchs.state_dict()
    assert [g.keys() for g in one["param_groups"]] == [g.keys() for g in other["param_groups"]]
    assert [s.keys() for s in one["state"].values()] == [s.keys() for s in other["state"].values()]
    assert one["state"][0]["step"].dtype == other["state"][0]["step"].dtype
    torchs.load_state_dict(one)
    mine.load_state_dict(other)
    for model, optimizer in ((ours, mine), (theirs, torchs)):
        train(model, optimizer, range(3, 6))
    for p, q in zip(ours.parameters(), theirs.parameters()):
        assert torch.allclose(p, q, rtol=1e-5, atol=1e-6)


def test_a_bad_gradient_leaves_all_parameters_alone() -> None:
    first, second = (nn.Parameter(random(4, 5)) for _ in range(2))
    before = first.detach().clone()
    optimizer = AdamW([first, second])
    first.grad, second.grad = torch.ones(4, 5), torch.ones(4, 5).to_sparse()
    with pytest.raises(errors.ArgumentError, match="`grad`"):
        optimizer.step()
    assert torch.equal(first, before) and optimizer.state[first]["step"] == 0


def test_parameters_of_any_layout_and_without_gradient() -> None:
    weight = nn.Parameter(random(2, 3, 4, 5).to(memory_format=torch.channels_last))
    idle, part = nn.Parameter(random(3)), random(6, 8)
    view = part[:, 2:5].requires_grad_()
    optimizer = AdamW([weight, idle, view], lr=torch.tensor(0.1), weight_decay=0.0)
    (weight.sum() + view.sum()).backward()
    expected = [t.detach() - 0.1 for t in (weight, view)]
    optimizer.step()
    assert all(torch.allclose(t, e, atol=1e-6) for t, e in zip((weight, view), expected))
    assert optimizer.state[weight]["exp_avg"].is_contiguous(memory_format=torch.channels_last)
    assert idle not in optimizer.state
