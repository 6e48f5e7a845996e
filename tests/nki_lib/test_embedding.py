"""The lookup of rows by ids: values bit by bit, gradients against float64, over shapes, types and layouts."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn import functional  # noqa: E402

from nki_lib.common import rows  # noqa: E402
from nki_lib.lookup.embedding import op  # noqa: E402
from nki_lib.lookup.embedding.api import embedding  # noqa: E402

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
UNIT = 2.0**-24


def random(*shape: int, dtype: Any = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape) + len(shape))).to(dtype)


def some_ids(shape: tuple[int, ...], rows: int) -> Tensor:
    return torch.randint(rows, shape, generator=torch.Generator().manual_seed(rows))


def check_values(ids: Tensor, weight: Tensor, scale: float | None, **options: Any) -> Tensor:
    """Copies are exact; a product in float32 is rounded twice at most, to float32 and to the type of the table."""
    found = embedding(ids, weight, scale=scale, **options)
    exact = functional.embedding(ids.long(), weight.double())
    assert (
        found.shape == (*ids.shape, weight.shape[1]) and found.dtype == weight.dtype and found.is_contiguous()
    )
    if scale is None:
        assert torch.equal(found.double(), exact)
    else:
        narrow = torch.finfo(weight.dtype)
        off = (found.double() - exact * scale).abs()
        assert (off <= (narrow.eps / 2 + 3 * UNIT) * (exact * scale).abs() + narrow.tiny).all()
    return found


def check_gradient(ids: Tensor, weight: Tensor, scale: float | None, padding_idx: int | None) -> None:
    """A sum of k gradients is off by 4 sqrt(k) u of the magnitudes, its scale by 2 u, and it is rounded once."""
    leaf, wide = weight.detach().requires_grad_(), weight.detach().double().requires_grad_()
    grad = random(*ids.shape, weight.shape[1], dtype=weight.dtype)
    (found,) = torch.autograd.grad(embedding(ids, leaf, padding_idx=padding_idx, scale=scale), leaf, grad)
    factor = 1.0 if scale is None else scale

    def sums(values: Tensor) -> Tensor:
        rows = functional.embedding(ids.long(), wide, padding_idx) * factor
        return torch.autograd.grad(rows, wide, values)[0]

    exact, magnitude = sums(grad.double()), sums(grad.double().abs()).abs()
    narrow, most = torch.finfo(weight.dtype), max(int(torch.bincount(ids.flatten().long()).max()), 1)
    error = (4 * most**0.5 + 4) * UNIT * magnitude
    bound = error * (1 + narrow.eps) + narrow.eps / 2 * exact.abs() + narrow.tiny
    assert found.dtype == weight.dtype and ((found.double() - exact).abs() <= bound).all()
    if padding_idx is not None:
        assert (found[padding_idx] == 0).all()


LAYOUTS = (
    lambda w: w,
    lambda w: w.mT.contiguous().mT,
    lambda w: functional.pad(w, (1, 2))[:, 1:-2],
    lambda w: w[:1].expand(w.shape),
)


@given(data=st.data(), layout=st.sampled_from(LAYOUTS), scale=st.sampled_from((None, 8.0, 0.3)))
def test_any_call(data: st.DataObject, layout: Any, scale: float | None) -> None:
    rows, width = data.draw(st.sampled_from((1, 3, 200))), data.draw(st.sampled_from((1, 48, 600)))
    shape = data.draw(st.sampled_from(((), (1,), (5,), (2, 70), (3, 1, 100))))
    ids = some_ids(shape, rows).to(data.draw(st.sampled_from((torch.int64, torch.int32))))
    weight = layout(random(rows, width, dtype=data.draw(st.sampled_from(DTYPES))))
    padding = data.draw(st.sampled_from((None, 0, -1)))
    check_values(ids, weight, scale, padding_idx=padding)
    check_gradient(ids, weight, scale, padding)


def test_wide_rows_and_several_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (rows, op):
        monkeypatch.setattr(module, "PIECE", 128)
    ids, weight = some_ids((150,), 9), random(9, 4100)
    check_values(ids, weight, None)
    check_gradient(ids, weight, 2.0, 3)


def test_one_row_a_thousand_times() -> None:
    ids = torch.full((1000,), 2)
    check_gradient(ids, random(4, 8), None, None)
    weight = random(4, 8).requires_grad_()
    (found,) = torch.autograd.grad(embedding(ids, weight).sum(), weight)
    assert torch.equal(found, torch.tensor([0.0, 0.0, 1000.0, 0.0])[:, None].expand(4, 8))


def test_the_gradient_is_the_same_bits_every_time() -> None:
    ids, weight = some_ids((400,), 7), random(7, 33).requires_grad_()
    grad = random(400, 33)
    first, second = (torch.autograd.grad(embedding(ids, weight), weight, grad)[0] for _ in range(2))
    assert torch.equal(first, second)


def test_ids_of_every_stride() -> None:
    weight = random(30, 5)
    check_values(some_ids((6, 4), 30).mT, weight, None)
    check_values(torch.tensor([7]).expand(3, 4), weight, None)
    check_gradient(some_ids((6, 4), 30).mT, weight, None, None)


@pytest.mark.parametrize(("shape", "table"), [((0,), (5, 3)), ((2, 0), (0, 3)), ((2, 3), (5, 0))])
def test_nothing_to_look_up(shape: tuple[int, ...], table: tuple[int, int]) -> None:
    weight = torch.zeros(table).requires_grad_()
    found = embedding(torch.zeros(shape, dtype=torch.int64), weight)
    assert found.shape == (*shape, table[1])
    (slope,) = torch.autograd.grad(found, weight, torch.ones_like(found))
    assert slope.shape == table and (slope == 0).all()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_special_values_stay_in_their_rows(value: float) -> None:
    weight, ids = random(6, 4), torch.tensor([1, 2, 1, 4])
    weight[1, 2] = value
    assert torch.equal(embedding(ids, weight).isfinite(), weight[ids].isfinite())
    grad = random(4, 4)
    grad[2, 0] = value
    ours, theirs = weight.clone().requires_grad_(), weight.clone().requires_grad_()
    (found,) = torch.autograd.grad(embedding(ids, ours, padding_idx=4), ours, grad)
    (true,) = torch.autograd.grad(functional.embedding(ids, theirs, 4), theirs, grad)
    assert torch.allclose(found, true, equal_nan=True)


def test_zeros_keep_their_signs() -> None:
    found = embedding(torch.tensor([0]), torch.tensor([[-0.0, 0.0]]))
    assert found.signbit().tolist() == [[True, False]]
