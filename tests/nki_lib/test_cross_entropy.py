"""Values and gradients of the cross entropy: against float64, over shapes, layouts, types and options."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn import functional  # noqa: E402

from nki_lib.common import rows  # noqa: E402
from nki_lib.loss.cross_entropy.api import cross_entropy  # noqa: E402
from nki_lib.loss.cross_entropy.reference import cross_entropy as reference  # noqa: E402

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
UNIT = 2.0**-24


def random(*shape: int, dtype: Any = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape) + len(shape))).to(dtype)


def labels(shape: tuple[int, ...], classes: int, ignored: int | None = None) -> Tensor:
    """Classes of rows; every third row is ignored if there is an index for that."""
    target = torch.randint(classes, shape, generator=torch.Generator().manual_seed(classes))
    if ignored is not None:
        target.view(-1)[::3] = ignored
    return target


def errors_of(x: Tensor, lse: Tensor, capped: bool) -> tuple[Tensor, Tensor]:
    """What a capped logit x [N, V] and the lse [N] may be off by; u is the unit roundoff of float32.

    A cap costs 4 u of the logit. In lse, an exponential is off by its argument's error, u of the row's range, and by
    4 u; a sum of V positive terms by 4 sqrt(V) u of itself; the logarithm and the maximum added to it by 2 u of theirs.
    """
    of_x = (4 if capped else 0) * UNIT * x.abs()
    span = x.amax(-1) - x.amin(-1)
    of_lse = (4 * x.shape[-1] ** 0.5 + span + 8) * UNIT + of_x.amax(-1)
    return of_x, of_lse + 2 * UNIT * (lse.abs() + math.log(x.shape[-1]) + x.abs().amax(-1))


def bounds(
    logits: Tensor, target: Tensor, weight: Tensor | None, grad: Tensor, options: dict[str, Any]
) -> tuple[Tensor, Tensor]:
    """What each row's loss and each logit's gradient may be off by. Dimensions: float64, [N, V] -> [N], [N, V].

    The loss is a sum of products with lse - x: each carries the errors of both and 8 u of the magnitudes. A gradient
    is slope p - less, where p is off by the error of its exponent, and both products by 8 u; a cap's factor by 8 u.
    """
    cap, smoothing, z = (options[name] for name in ("softcap", "label_smoothing", "z_loss"))
    x = logits if cap is None else cap * torch.tanh(logits / cap)
    lse = x.logsumexp(-1)
    of_x, of_lse = errors_of(x, lse, cap is not None)
    counted = target != options["ignore_index"]
    classes = torch.where(counted, target, 0)
    weights = torch.ones_like(x[0]) if weight is None else weight
    share = torch.full_like(x, smoothing / x.shape[-1]) * weights
    share.scatter_add_(1, classes[:, None], ((1 - smoothing) * weights[classes])[:, None])
    spread = 4 * x.shape[-1] ** 0.5 if smoothing else 0  # a sum over the classes is made for smoothing only
    terms = share * (of_x + of_lse[:, None] + (8 + spread) * UNIT * (x.abs() + lse.abs()[:, None]))
    of_loss = terms.sum(-1) + abs(z) * lse.abs() * (2 * of_lse + 8 * UNIT * lse.abs())
    slope = share.sum(-1) + 2 * abs(z) * lse.abs()
    p = torch.softmax(x, -1)
    of_p = p * (of_x + of_lse[:, None] + (16 + (x - lse[:, None]).abs()) * UNIT)
    straight = slope[:, None] * of_p + 8 * UNIT * (slope[:, None] * p + share)
    straight += abs(z) * 2 * of_lse[:, None] * p
    if cap is not None:
        straight += 8 * UNIT * (slope[:, None] * p + share)
    return torch.where(counted, of_loss, 0), straight * (grad.abs() * counted)[:, None]


def check(logits: Tensor, target: Tensor, weight: Tensor | None = None, **given: Any) -> None:
    """Compare losses and gradients of the logits with float64, within the derived bounds."""
    options = {"ignore_index": -100, "label_smoothing": 0.0, "softcap": None, "z_loss": 0.0, **given}
    leaf = logits.detach().requires_grad_()
    found = cross_entropy(leaf, target, weight=weight, reduction="none", **options)
    assert found.shape == target.shape and found.dtype == torch.float32
    wide = logits.detach().double().flatten(0, -2).requires_grad_()
    flat, weights = target.flatten().long(), None if weight is None else weight.float().double()
    exact, _ = reference(wide, flat, weights, **options)
    grad = random(*target.shape)
    (mine,) = torch.autograd.grad(found, leaf, grad)
    (true,) = torch.autograd.grad(exact, wide, grad.double().flatten())
    of_loss, of_grad = bounds(wide.detach(), flat, weights, grad.double().flatten(), options)
    assert ((found.detach().double().flatten() - exact).abs() <= of_loss * (1 + 1e-9)).all()
    narrow = torch.finfo(logits.dtype)
    stored = of_grad * (1 + narrow.eps) + narrow.eps / 2 * true.abs() + narrow.tiny
    assert mine.shape == logits.shape and mine.dtype == logits.dtype
    assert ((mine.double().flatten(0, -2) - true).abs() <= stored).all()


LAYOUTS = (
    lambda x: x,
    lambda x: x.mT.contiguous().mT,
    lambda x: functional.pad(x, (1, 2))[..., 1:-2],
    lambda x: x[:1].expand(x.shape),
)


@given(data=st.data(), layout=st.sampled_from(LAYOUTS), weighted=st.booleans())
def test_any_call(data: st.DataObject, layout: Any, weighted: bool) -> None:
    count, classes = data.draw(st.sampled_from((1, 2, 7, 130))), data.draw(st.sampled_from((1, 2, 33, 300)))
    dtype = data.draw(st.sampled_from(DTYPES))
    ignored = data.draw(st.sampled_from((-100, -1, 0, classes)))
    target = labels((count,), classes, ignored).to(data.draw(st.sampled_from((torch.int64, torch.int32))))
    check(
        layout(random(count, classes, dtype=dtype) * 3),
        target,
        random(classes).abs().to(data.draw(st.sampled_from(DTYPES))) if weighted else None,
        ignore_index=ignored,
        label_smoothing=data.draw(st.sampled_from((0.0, 0.1, 1.0))),
        softcap=data.draw(st.sampled_from((None, 2.0, 30.0, 50.0))),
        z_loss=data.draw(st.sampled_from((0.0, 1e-2))),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_several_chunks_of_classes(dtype: Any) -> None:
    logits, weight = random(3, 9000, dtype=dtype) * 4, random(9000).abs()
    logits[1, 5000] = 60.0
    check(logits, torch.tensor([8999, 0, 4096]), weight, label_smoothing=0.1, softcap=50.0)
    check(logits, torch.tensor([8999, 0, 4096]), label_smoothing=0.1, softcap=30.0)
    check(logits, torch.tensor([0, 5000, 4095]))


def test_several_pieces_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "PIECE", 128)
    check(random(2, 150, 20), labels((2, 150), 20, -100), z_loss=0.1)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("options", [{}, {"weight": True}, {"weight": True, "label_smoothing": 0.3}])
def test_reductions_as_in_pytorch(reduction: str, options: dict[str, Any]) -> None:
    logits, target = random(2, 9, 30).requires_grad_(), labels((2, 9), 30, -100)
    given = options | ({"weight": random(30).abs()} if "weight" in options else {})
    found = cross_entropy(logits, target, reduction=reduction, **given)
    true = functional.cross_entropy(logits.transpose(1, 2), target, reduction=reduction, **given)
    assert torch.allclose(found, true, rtol=1e-5)
    ours, theirs = (torch.autograd.grad(loss.sum(), logits)[0] for loss in (found, true))
    assert torch.allclose(ours, theirs, atol=1e-6)


def test_without_rows_that_count() -> None:
    nothing, logits = torch.full((3,), -100), random(3, 5)
    assert cross_entropy(logits, nothing).isnan()
    assert cross_entropy(logits, nothing, reduction="sum") == 0.0
    assert cross_entropy(random(0, 5), torch.zeros(0, dtype=torch.int64)).isnan()
    assert cross_entropy(random(0, 5), torch.zeros(0, dtype=torch.int64), reduction="none").shape == (0,)
    leaf = logits.requires_grad_()
    assert (torch.autograd.grad(cross_entropy(leaf, nothing, reduction="sum"), leaf)[0] == 0).all()
    one = cross_entropy(random(5), torch.tensor(2))
    assert torch.allclose(one, functional.cross_entropy(random(5), torch.tensor(2)))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 3e38, -3e38])
@pytest.mark.parametrize("place", [1, 2])
def test_special_values_as_in_pytorch(value: float, place: int) -> None:
    logits, target = random(3, 6), torch.tensor([0, 2, -100])
    logits[1, place] = value
    if value == value:
        logits[2, :] = value
    ours, theirs = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    found = cross_entropy(ours, target, reduction="none")
    true = functional.cross_entropy(theirs, target, reduction="none")
    assert torch.allclose(found, true, rtol=1e-5, equal_nan=True)
    (mine,) = torch.autograd.grad(found[:2].sum(), ours)
    (slope,) = torch.autograd.grad(true[:2].sum(), theirs)
    assert torch.allclose(mine[:2], slope[:2], atol=1e-6, equal_nan=True)


def test_a_chunk_of_masked_classes() -> None:
    logits = random(2, 5000)
    logits[:, 10:] = float("-inf")
    found = cross_entropy(logits, torch.tensor([3, 9]), reduction="none")
    assert torch.allclose(
        found, functional.cross_entropy(logits[:, :10], torch.tensor([3, 9]), reduction="none")
    )
