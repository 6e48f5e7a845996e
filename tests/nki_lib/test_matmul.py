"""The tiled matrix product, and the few sizes that rows are filled up to."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402

from nki import errors  # noqa: E402
from nki_lib.common.rows import PIECE, bucket  # noqa: E402
from nki_lib.linear.matmul import loading  # noqa: E402
from nki_lib.linear.matmul.kernel import matmul as kernel  # noqa: E402
from nki_lib.linear.matmul.op import OPERATOR as matmul  # noqa: E402
from tests.nki_lib.format_bounds import DTYPES, product_error, stored, wide  # noqa: E402


def random(*shape: int, dtype: Any = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def check(a: Tensor, b: Tensor) -> Tensor:
    """Run the operator, compare with float64 within the derived bound, return the result."""
    found = matmul(a, b)
    assert found.shape == (a.shape[0], b.shape[1]) and found.dtype == a.dtype and found.is_contiguous()
    exact = wide(a) @ wide(b)
    error = product_error(a.shape[1], wide(a).abs() @ wide(b).abs())
    assert ((found.double() - exact).abs() <= stored(exact, error, a.dtype)).all()
    return found


LAYOUTS = (
    lambda x: x,
    lambda x: x.mT.contiguous().mT,
    lambda x: torch.nn.functional.pad(x, (1, 2))[:, 1:-2],
)
SIZES = st.sampled_from((0, 1, 2, 5, 127, 128, 129, 200, 520))


@given(
    sizes=st.tuples(SIZES, SIZES, SIZES),
    dtype=st.sampled_from(DTYPES),
    layouts=st.tuples(*[st.sampled_from(LAYOUTS)] * 2),
)
def test_any_product(sizes: Any, dtype: Any, layouts: Any) -> None:
    m, k, n = sizes
    check(layouts[0](random(m, k, dtype=dtype)), layouts[1](random(k, n, dtype=dtype)))


def test_more_than_one_block_each_way() -> None:
    a, b = random(530, 600), random(600, 1030)
    check(a, b)
    check(a.mT.contiguous().mT, b.mT.contiguous().mT)
    check(random(2, 16).expand(2, 16)[:1].expand(40, 16), random(16, 3))


def test_panels_that_do_not_fit_are_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = random(64, 700), random(700, 601)
    kept = check(a, b)
    monkeypatch.setattr(loading, "KEPT_SHARE", 10**6)
    assert torch.equal(check(a, b), kept)


def test_infinities_spoil_only_their_row() -> None:
    a, b = random(5, 40), random(40, 6)
    a[2, 7], a[3, 1] = float("inf"), float("nan")
    assert torch.allclose(matmul(a, b), a @ b, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_rows_come_in_few_sizes() -> None:
    sizes = [bucket(count) for count in range(1, PIECE + 1)]
    assert len(set(sizes)) == 19 and sizes == sorted(sizes) and sizes[-1] == PIECE
    assert all(size >= count for count, size in enumerate(sizes, 1))
    assert all(-(-size // 128) <= -(-count // 128) * 1.25 for count, size in enumerate(sizes, 1))


def test_other_lengths_stage_nothing_new() -> None:
    weight = random(24, 33)
    matmul(random(64, 33), weight.mT)
    matmul(random(64, 24).mT, random(64, 33))
    before = len(kernel._cache)
    for count in (33, 41, 60, PIECE + 40):
        check(random(count, 33), weight.mT)
    for count in (33, 64):
        check(random(count, 24).mT, random(count, 33))
    assert len(kernel._cache) <= before + 1  # the whole piece


def test_gradients_are_products_and_have_gradients() -> None:
    """Of -1, 0 and 1: all numbers on the way are whole and below 2^24, so that float32 makes no error at all."""
    a, b = (random(*s).round().clamp(-1, 1).requires_grad_() for s in ((7, 9), (9, 5)))
    found = torch.autograd.grad(matmul(a, b).pow(3).sum(), (a, b), create_graph=True)
    true = torch.autograd.grad((a @ b).pow(3).sum(), (a, b), create_graph=True)
    assert all(torch.equal(f, t) and f.any() for f, t in zip(found, true))
    second, expected = (torch.autograd.grad(g[0].square().sum(), (a, b)) for g in (found, true))
    assert all(torch.equal(f, t) and f.any() for f, t in zip(second, expected))


def test_opcheck_and_errors() -> None:
    torch.library.opcheck(torch.ops.nki_lib.matmul, (random(3, 4), random(5, 4).mT.requires_grad_()))
    with pytest.raises(errors.ShapeError, match="`b`"):
        matmul(random(3, 4), random(3, 4))
    with pytest.raises(errors.DtypeError, match="`b`"):
        matmul(random(3, 4), random(4, 3).half())
