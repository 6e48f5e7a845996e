"""The loss fused with its projection: values and gradients against float64, PyTorch's view of it, its program."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn import functional  # noqa: E402

import nki  # noqa: E402
from nki import errors  # noqa: E402
from nki_lib.common import rows  # noqa: E402
from nki_lib.loss.linear_cross_entropy import api  # noqa: E402
from nki_lib.loss.linear_cross_entropy.api import linear_cross_entropy  # noqa: E402
from nki_lib.loss.linear_cross_entropy.kernel import linear_cross_entropy as kernel  # noqa: E402

UNIT = 2.0**-24
TARGETS = ("trn2", "trn3")  # gathers are documented from trn2 on


def random(*shape: int, dtype: Any = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape) + len(shape))).to(dtype)


def exact(x: Tensor, weight: Tensor, target: Tensor, softcap: float | None, **options: Any) -> Tensor:
    """PyTorch's own, in the dtype it is given."""
    logits = x @ weight.mT
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    return functional.cross_entropy(logits, target, reduction="none", **options)


def check(x: Tensor, weight: Tensor, target: Tensor, softcap: float | None = None, **options: Any) -> None:
    """Compare with float64.

    A logit is off by (4 sqrt(H) + 4) u of its magnitude |x| |w|, u being the unit roundoff of float32; a loss by twice
    the largest of these and (4 sqrt(V) + 16) u of all magnitudes. The way back rounds logits to the dtype of x: that of
    magnitude M moves p by at most M eps p; slopes, which are at most the row's gradient and add up to twice that, are
    rounded again, and so is a piece of the gradient of weight.
    """
    ours, theirs = [
        [t.detach().to(d).requires_grad_() for t in (x, weight)] for d in (x.dtype, torch.float64)
    ]
    found = linear_cross_entropy(*ours, target, softcap=softcap, reduction="none", **options)
    true = exact(*theirs, target, softcap, **options)
    magnitude = (x.double().abs() @ weight.double().abs().mT).amax(-1)
    spread = (4 * weight.shape[0] ** 0.5 + 16) * (1 + 2 * magnitude)
    bound = UNIT * ((8 * x.shape[1] ** 0.5 + 8) * magnitude + spread)
    assert found.dtype == torch.float32 and ((found.double() - true).abs() <= bound).all()
    grad = random(target.shape[0])
    mine = torch.autograd.grad(found, ours, grad)
    slopes = torch.autograd.grad(true, theirs, grad.double())
    moved, size = (2 + float(magnitude.max())) * torch.finfo(x.dtype).eps, grad.double().abs()
    limits = 2 * size[:, None] * weight.double().abs().amax(0), size @ x.double().abs()
    for a, b, limit in zip(mine, slopes, limits):
        assert a.dtype == x.dtype and ((a.double() - b).abs() <= moved * limit + 1e-6).all()


@given(data=st.data(), dtype=st.sampled_from((torch.float32, torch.bfloat16, torch.float16)))
def test_any_call(data: st.DataObject, dtype: Any) -> None:
    count, classes = data.draw(st.sampled_from((1, 5, 130))), data.draw(st.sampled_from((1, 40, 600)))
    width = data.draw(st.sampled_from((1, 24, 150)))
    target = torch.arange(count) * 7 % classes
    target[::4] = -100
    check(
        random(count, width, dtype=dtype),
        (random(classes, width) / width**0.5).to(dtype),
        target,
        data.draw(st.sampled_from((None, 3.0))),
        label_smoothing=data.draw(st.sampled_from((0.0, 0.2))),
    )


def test_several_pieces_and_wide_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "PIECE", 128)
    check(random(200, 24), random(30, 24) / 5, torch.arange(200) % 30)
    check(random(2, 4200), random(30, 4200) / 65, torch.arange(2))


def test_reductions_and_layouts() -> None:
    x, weight, target = random(8, 2, 3).transpose(0, 2), random(8, 20).mT, torch.arange(6).view(3, 2)
    target[0, 0] = -100
    losses = exact(x.reshape(6, 8), weight, target.flatten(), None)
    assert torch.allclose(linear_cross_entropy(x, weight, target), losses.sum() / 5, rtol=1e-5)
    assert torch.allclose(linear_cross_entropy(x, weight, target, reduction="sum"), losses.sum(), rtol=1e-5)
    found = linear_cross_entropy(x, weight, target, reduction="none", z_loss=0.1)
    expected = losses + 0.1 * (x.reshape(6, 8) @ weight.mT).logsumexp(-1).square() * (
        target.flatten() != -100
    )
    assert torch.allclose(found.flatten(), expected, rtol=1e-5)
    assert linear_cross_entropy(x[:0], weight, target[:0]).isnan()


@pytest.mark.slow
def test_opcheck_and_compile() -> None:
    leaves = random(4, 6).requires_grad_(), random(9, 6).requires_grad_()
    target = torch.tensor([1, -100, 8, 0])
    torch.library.opcheck(torch.ops.nki_lib.linear_cross_entropy, (*leaves, target))
    torch._dynamo.reset()
    compiled = torch.compile(linear_cross_entropy, fullgraph=True, backend="aot_eager", dynamic=True)
    for count in (5, 140):
        x, labels = random(count, 6).requires_grad_(), torch.arange(count) % 9
        found, expected = compiled(x, leaves[1], labels), linear_cross_entropy(x, leaves[1], labels)
        assert torch.equal(found, expected)
        assert torch.equal(*(torch.autograd.grad(value, x)[0] for value in (found, expected)))
    torch._dynamo.reset()
    x = random(4, 6).to("meta")
    assert linear_cross_entropy(x, random(9, 6).to("meta"), target.to("meta"), reduction="none").shape == (4,)


WRONG: dict[str, tuple[type[Exception], str, Any]] = {
    "width": (errors.ShapeError, "`weight`", lambda x, w, t: linear_cross_entropy(x, w[:, :5], t)),
    "types": (errors.DtypeError, "`weight`", lambda x, w, t: linear_cross_entropy(x, w.half(), t)),
    "rows": (errors.ShapeError, "`target`", lambda x, w, t: linear_cross_entropy(x, w, t[:2])),
    "probabilities": (errors.DtypeError, "`target`", lambda x, w, t: linear_cross_entropy(x, w, t.float())),
    "no class": (errors.ArgumentError, "`target`", lambda x, w, t: linear_cross_entropy(x, w, t + 7)),
    "reduction": (
        errors.ArgumentError,
        "`reduction`",
        lambda x, w, t: linear_cross_entropy(x, w, t, reduction=""),
    ),
    "cap": (errors.ArgumentError, "`softcap`", lambda x, w, t: linear_cross_entropy(x, w, t, softcap=-1.0)),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_name_the_argument(case: str) -> None:
    kind, named, make = WRONG[case]
    with pytest.raises(kind, match=named) as caught:
        make(random(4, 6), random(9, 6), torch.arange(4))
    assert "linear_cross_entropy" in str(caught.value)


def test_without_torch_the_front_door_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_HAS_TORCH", False)
    with pytest.raises(errors.MissingExtraError, match=r"open-nki\[torch\]"):
        linear_cross_entropy(None, None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("options", [{}, {"smoothing": 0.1, "z": 0.01, "cap": 5.0}])
def test_the_program_is_clean_and_the_same_both_ways(target: str, options: dict[str, Any]) -> None:
    draw = np.random.default_rng(0)
    x, weight = (
        draw.standard_normal(s, np.float32).astype(ml_dtypes.bfloat16) for s in ((256, 70), (600, 70))
    )
    given = x, draw.integers(-1, 600, 256, np.int32), weight
    found = kernel.check(*given, target=target, **options)
    assert [str(d) for d in found if d.severity != "note"] == []
    planned = nki.simulate(kernel, target=target)(*given, **options)
    assert planned.tobytes() == nki.simulate(kernel, target=target, eager=True)(*given, **options).tobytes()
    assert (
        planned.tobytes() == nki.simulate(kernel, target=target, sanitize=True)(*given, **options).tobytes()
    )


@pytest.mark.slow
def test_the_tensor_engine_bounds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """512 rows of width 2048 against 32768 classes in bfloat16 on trn2: at most 1.1 times the busiest engine's work."""
    monkeypatch.setenv("NKI_CHECK", "0")
    x, weight = (np.zeros((n, 2048), ml_dtypes.bfloat16) for n in (512, 32768))
    profile = nki.profile(kernel, target="trn2")(x, np.zeros(512, np.int32), weight)
    assert profile.latency_us <= 1.1 * max(engine.busy_us for engine in profile.engines.values())
