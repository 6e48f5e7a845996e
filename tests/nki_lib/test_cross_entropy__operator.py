"""`nki_lib.cross_entropy` as PyTorch sees it: schema, fakes, compile, export, errors, launches."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch.nn import functional  # noqa: E402

from nki import errors  # noqa: E402
from nki_lib.loss.cross_entropy import api, op  # noqa: E402
from nki_lib.loss.cross_entropy.api import cross_entropy  # noqa: E402
from nki_lib.loss.cross_entropy.kernel import cross_entropy as kernel  # noqa: E402

OPS = torch.ops.nki_lib
LABELS = torch.tensor([1, -100, 3, 0])


def random(*shape: int, dtype: Any = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def test_schema() -> None:
    assert str(OPS.cross_entropy.default._schema) == (
        "nki_lib::cross_entropy(Tensor logits, Tensor target, Tensor? weight=None, *, int ignore_index=-100, "
        "float label_smoothing=0., float? softcap=None, float z_loss=0.) -> (Tensor, Tensor)"
    )


@pytest.mark.slow
def test_opcheck() -> None:
    leaf = random(4, 6).requires_grad_()
    options = {"ignore_index": -100, "label_smoothing": 0.1, "softcap": 5.0, "z_loss": 0.1}
    torch.library.opcheck(OPS.cross_entropy, (leaf, LABELS, random(6).abs()), options)
    leaf = leaf.detach()
    quick = ("test_schema", "test_faketensor")
    torch.library.opcheck(OPS.cross_entropy, (leaf, LABELS), test_utils=quick)
    narrow = random(6, 1, dtype=torch.bfloat16).mT.expand(4, 6)
    torch.library.opcheck(OPS.cross_entropy, (narrow, LABELS.int()), test_utils=quick)
    torch.library.opcheck(OPS.cross_entropy, (random(0, 6), LABELS[:0]), test_utils=quick)
    column = random(4)
    torch.library.opcheck(
        OPS.cross_entropy_backward, (column, random(4, 6), LABELS, column), test_utils=quick
    )


@pytest.mark.slow
def test_compiles_as_one_graph_with_gradients_for_all_lengths() -> None:
    def loss(x: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        return cross_entropy(x * 2, target, weight=weight, label_smoothing=0.1) + 1

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=True)
    weight = random(9).abs()
    for batch, length in ((2, 5), (3, 9), (4, 70)):
        x = random(batch, length, 9).requires_grad_()
        target = torch.arange(batch * length).view(batch, length) % 9
        expected = functional.cross_entropy((x * 2).transpose(1, 2), target, weight, label_smoothing=0.1) + 1
        found = compiled(x, target, weight)
        assert torch.allclose(found, expected, atol=1e-5)
        slopes = [torch.autograd.grad(value, x)[0] for value in (found, expected)]
        assert torch.allclose(*slopes, atol=1e-6)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    torch._dynamo.reset()


@pytest.mark.slow
def test_exports() -> None:
    class Loss(torch.nn.Module):
        def forward(self, logits: Tensor, target: Tensor) -> Tensor:
            return cross_entropy(logits, target)

    rows = torch.export.Dim("rows", min=2, max=512)
    shapes = {"logits": {0: rows}, "target": {0: rows}}
    program = torch.export.export(Loss(), (random(4, 6), LABELS), dynamic_shapes=shapes)
    x, target = random(20, 6), torch.arange(20) % 6
    assert torch.equal(program.module()(x, target), cross_entropy(x, target))


def test_meta_tensors() -> None:
    logits, target = random(2, 3, 7).to("meta"), torch.zeros(2, 3, dtype=torch.int64, device="meta")
    assert cross_entropy(logits, target).shape == ()
    found = cross_entropy(logits.bfloat16(), target, reduction="none")
    assert found.device.type == "meta" and found.shape == (2, 3) and found.dtype == torch.float32


def test_one_program_serves_many_numbers_of_rows() -> None:
    kernel._cache.clear()
    for count in (257, 300, 384):
        cross_entropy(random(count, 11), torch.zeros(count, dtype=torch.int64))
    assert len(kernel._cache) == 1


def test_what_is_kept_for_the_way_back_is_one_number_a_row() -> None:
    logits = random(4, 600).requires_grad_()
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        cross_entropy(logits, LABELS, reduction="none")
    storages = {t.untyped_storage().data_ptr() for t in kept} - {logits.untyped_storage().data_ptr()}
    sizes = {t.untyped_storage().data_ptr(): t.numel() for t in kept}
    assert all(sizes[storage] <= 4 for storage in storages)


def test_gradients_of_gradients_are_refused() -> None:
    logits = random(4, 6).requires_grad_()
    (slope,) = torch.autograd.grad(cross_entropy(logits, LABELS), logits, create_graph=True)
    with pytest.raises(errors.NoBackwardError, match=r"no_grad"):
        slope.sum().backward()


X = (4, 6)
WRONG: dict[str, tuple[type[Exception], str, Any]] = {
    "float64": (errors.DtypeError, "`logits`", lambda r, t: cross_entropy(r(*X).double(), t)),
    "scalar": (errors.ShapeError, "`logits`", lambda r, t: cross_entropy(r(1)[0], t)),
    "no classes": (errors.ShapeError, "`logits`", lambda r, t: cross_entropy(r(4, 0), t)),
    "probabilities": (errors.DtypeError, "`target`", lambda r, t: cross_entropy(r(*X), t.float())),
    "rows": (errors.ShapeError, "`target`", lambda r, t: cross_entropy(r(5, 6), t)),
    "weights": (errors.ShapeError, "`weight`", lambda r, t: cross_entropy(r(*X), t, weight=r(5))),
    "weight type": (
        errors.DtypeError,
        "`weight`",
        lambda r, t: cross_entropy(r(*X), t, weight=r(6).double()),
    ),
    "reduction": (errors.ArgumentError, "`reduction`", lambda r, t: cross_entropy(r(*X), t, reduction="avg")),
    "smoothing": (
        errors.ArgumentError,
        "`label_smoothing`",
        lambda r, t: cross_entropy(r(*X), t, label_smoothing=1.5),
    ),
    "cap": (errors.ArgumentError, "`softcap`", lambda r, t: cross_entropy(r(*X), t, softcap=0.0)),
    "z": (errors.ArgumentError, "`z_loss`", lambda r, t: cross_entropy(r(*X), t, z_loss=float("nan"))),
    "learned": (
        errors.NoBackwardError,
        "`weight`",
        lambda r, t: cross_entropy(r(*X), t, weight=r(6).requires_grad_()),
    ),
    "no tensor": (errors.ArgumentError, "`target`", lambda r, t: cross_entropy(r(*X), 1)),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_name_the_argument(case: str) -> None:
    kind, named, make = WRONG[case]
    for device in ("cpu", "meta"):
        with pytest.raises(kind, match=named) as caught:
            make(lambda *shape: random(*shape).to(device), LABELS.to(device))  # noqa: B023
        text = str(caught.value)
        assert "cross_entropy" in text and "found:" in text and "allowed:" in text


@pytest.mark.parametrize("label", [6, -1, -101, 2**40])
def test_labels_that_are_no_class(label: int) -> None:
    with pytest.raises(errors.ArgumentError, match=r"(?s)`target`.*row 1"):
        cross_entropy(random(4, 6), torch.tensor([0, label, -100, 1]))


def test_too_many_classes() -> None:
    with pytest.raises(errors.ShapeError, match="`logits`"):
        cross_entropy(
            torch.empty(1, op.MOST_CLASSES + 1, device="meta"),
            torch.empty(1, dtype=torch.int64, device="meta"),
        )


def test_without_torch_the_front_door_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_HAS_TORCH", False)
    with pytest.raises(errors.MissingExtraError, match=r"open-nki\[torch\]"):
        cross_entropy(None, None)  # type: ignore[arg-type]
