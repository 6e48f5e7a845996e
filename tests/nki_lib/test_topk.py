"""Values and gradients of topk: bit by bit against a stable sort, over shapes, dimensions, layouts, types and ties."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402

from nki_lib.reduction.topk.api import topk  # noqa: E402
from nki_lib.reduction.topk.kernel import padded_width, segments_of  # noqa: E402
from tests.nki_lib.format_bounds import DTYPES  # noqa: E402
from tests.nki_lib.test_softmax import LAYOUTS  # noqa: E402

LARGEST_FLOAT = torch.finfo(torch.float32).max
INFINITY, NAN = float("inf"), float("nan")
BITS = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float16: torch.int16}


def numbers(shape: Any, dtype: Any, kind: str = "plain") -> Tensor:
    """Random elements: without ties, with many, or with everything that is special."""
    generator = torch.Generator().manual_seed(sum(shape))
    if kind == "tied":
        return torch.randint(-3, 4, shape, generator=generator).to(dtype)
    x = torch.randn(shape, generator=generator).to(dtype)
    if kind == "special":
        limits = torch.finfo(dtype)
        values = torch.tensor([NAN, INFINITY, -INFINITY, 0.0, -0.0, 1.0, limits.max, limits.min])
        picked = values[torch.randint(0, len(values), shape, generator=generator)]
        x = torch.where(torch.rand(shape, generator=generator) < 0.7, picked, x.float()).to(dtype)
    return x


def check(x: Tensor, k: int, dim: int = -1, largest: bool = True) -> None:
    """Compare with a stable sort: indices, and values bit by bit."""
    values, indices = topk(x, k, dim, largest)
    order = x.sort(stable=True, dim=dim, descending=largest).indices.narrow(dim, 0, k)
    assert values.dtype == x.dtype and indices.dtype == torch.int64
    assert values.is_contiguous() and indices.is_contiguous()
    assert torch.equal(indices, order)
    bits = BITS[x.dtype]
    assert torch.equal(values.view(bits), x.gather(dim, order).contiguous().view(bits))


@given(data=st.data(), layout=st.sampled_from(LAYOUTS), largest=st.booleans())
def test_any_call(data: st.DataObject, layout: Any, largest: bool) -> None:
    shape = data.draw(st.lists(st.sampled_from((0, 1, 2, 5, 12, 130)), min_size=1, max_size=3))
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    kind = data.draw(st.sampled_from(("plain", "tied", "special")))
    x = layout(numbers(shape, data.draw(st.sampled_from(DTYPES)), kind))
    check(x, data.draw(st.integers(0, min(x.shape[dim], 40))), dim, largest)


@pytest.mark.parametrize("kind", ["plain", "tied", "special"])
@pytest.mark.parametrize(
    ("shape", "k"),
    [
        ((3, 4096), 256),
        ((140, 1024), 9),
        ((2, 16384), 300),
        ((1, 65536), 9),
        ((2, 5003), 40),
        ((1, 8192), 1100),
    ],
)
def test_wide_rows(shape: tuple[int, int], k: int, kind: str) -> None:
    dtype = DTYPES[k % 3]
    for largest in (True, False):
        check(numbers(shape, dtype, kind), k, largest=largest)


def test_three_levels_and_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    from nki_lib.reduction.topk import op

    assert segments_of(1, 1 << 17, 56) > 1 and segments_of(1, segments_of(1, 1 << 17, 56) * 56, 56) > 1
    check(numbers((1, 1 << 17), torch.float32), 56)
    monkeypatch.setattr(op, "PIECE", 128)
    check(numbers((300, 9), torch.float32), 2)


def test_without_dimensions() -> None:
    values, indices = topk(torch.tensor(3.0), 1, 0)
    assert values.shape == indices.shape == () and values == 3 and indices == 0


def test_everything_is_minus_infinity_or_nan() -> None:
    for value in (-INFINITY, INFINITY, NAN):
        x = torch.full((2, 5001), value)
        for largest in (True, False):
            assert torch.equal(topk(x, 20, largest=largest)[1], torch.arange(20).expand(2, 20))


def test_the_largest_numbers_lie_between_their_neighbours_and_infinity() -> None:
    x = torch.tensor([[1.0, -INFINITY, -LARGEST_FLOAT, LARGEST_FLOAT, INFINITY, NAN, 3.4e38, -3.4e38]])
    assert topk(x, 8)[1].tolist() == [[5, 4, 3, 6, 0, 7, 2, 1]]
    assert topk(x, 8, largest=False)[1].tolist() == [[1, 2, 7, 0, 6, 3, 4, 5]]


@pytest.mark.parametrize("width", [1, 7, 4096, 4097, 50257, 128256, 151936, 201088, 1 << 20])
def test_rows_are_filled_up_to_what_can_be_cut(width: int) -> None:
    full = padded_width(width)
    assert width <= full < width * 1.01 + 1
    assert full % segments_of(16, full, 2048 if width > 4096 else 1) == 0
    if width in (4096, 128256, 151936, 201088, 1 << 20):
        assert full == width


@pytest.mark.parametrize("dim", [0, 1])
def test_gradient_goes_where_the_elements_stood(dim: int) -> None:
    x = numbers((6, 9), torch.float32).requires_grad_()
    weight = numbers((6, 9), torch.float32).narrow(dim, 0, 3)
    values, indices = topk(x, 3, dim, sorted=False)
    assert not indices.requires_grad
    (found,) = torch.autograd.grad((values * weight).sum(), x, create_graph=True)
    (true,) = torch.autograd.grad((torch.topk(x, 3, dim).values * weight).sum(), x)
    assert torch.equal(found, true)
    narrow = x.detach().bfloat16().requires_grad_()
    (found,) = torch.autograd.grad(topk(narrow, 3, dim)[0].square().sum(), narrow)
    assert found.dtype == torch.bfloat16 and ((found != 0).sum(dim) == 3).all()
