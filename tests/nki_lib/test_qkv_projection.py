"""Values and gradients of the QKV projection: against float64, over shapes, layouts, types and what is fused."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402

from nki import errors  # noqa: E402
from nki_lib.attention.qkv_projection import normalising  # noqa: E402
from nki_lib.attention.qkv_projection.api import qkv_projection  # noqa: E402
from nki_lib.attention.qkv_projection.kernel import qkv_projection as kernel  # noqa: E402
from tests.nki_lib.format_bounds import DTYPES, wide  # noqa: E402
from tests.nki_lib.projection_bounds import projected, qkv_bounds  # noqa: E402

Call = tuple[tuple[Tensor, Tensor, Tensor | None], dict[str, Any]]


def call(
    sizes: tuple[int, int, int] = (2, 9, 20),
    heads: tuple[int, int] = (3, 1),
    depth: int = 8,
    dtype: Any = torch.float32,
    bias: bool = True,
    norm: bool = True,
    tables: str = "half",
    interleaved: bool = False,
) -> Call:
    """The arguments of a call; sizes are (B, S, H), tables none, half, full or batch."""
    batch, length, width = sizes
    generator = torch.Generator().manual_seed(sum(sizes) + depth)
    rows = (heads[0] + 2 * heads[1]) * depth
    shape = {"half": (length, depth // 2), "full": (length, depth), "batch": (batch, length, depth // 2)}
    x, weight = (torch.randn(s, generator=generator) for s in (sizes, (rows, width)))
    b, scale = (torch.randn(s, generator=generator) for s in (rows, width))
    cos, sin = (torch.randn(shape.get(tables, (0,)), generator=generator) for _ in range(2))
    options = {
        "num_heads": heads[0],
        "num_kv_heads": heads[1],
        "norm_weight": 1 + 0.2 * scale if norm else None,
        "eps": 1e-5,
        "cos": cos if tables != "none" else None,
        "sin": sin if tables != "none" else None,
        "interleaved": interleaved,
    }
    return (x.to(dtype), weight.to(dtype), b.to(dtype) if bias else None), options


def widened(options: dict[str, Any]) -> dict[str, Any]:
    return {name: wide(v) if isinstance(v, Tensor) else v for name, v in options.items()}


def check(tensors: Any, options: dict[str, Any]) -> tuple[Tensor, ...]:
    """Run the operator, compare with float64 within the derived bound, return the results."""
    found = qkv_projection(*tensors, **options)
    exact = projected(*(wide(t) for t in tensors), **widened(options))
    for mine, true, bound in zip(found, exact, qkv_bounds(exact, *tensors, options)):
        assert mine.shape == true.shape and mine.dtype == tensors[0].dtype and mine.is_contiguous()
        assert ((mine.double() - true).abs() <= bound).all()
    return found


@given(data=st.data())
def test_any_call(data: st.DataObject) -> None:
    sizes = (st.integers(0, 3), st.sampled_from((0, 1, 5, 130)), st.sampled_from((0, 1, 7, 64, 200)))
    check(
        *call(
            data.draw(st.tuples(*sizes)),
            data.draw(st.sampled_from(((1, 1), (3, 1), (2, 2), (1, 2)))),
            data.draw(st.sampled_from((2, 6, 32))),
            data.draw(st.sampled_from(DTYPES)),
            data.draw(st.booleans()),
            data.draw(st.booleans()),
            data.draw(st.sampled_from(("none", "half", "full", "batch"))),
            data.draw(st.booleans()),
        )
    )


def test_blocks_of_whole_heads() -> None:
    """96 does not divide 512: a block has 5 heads. The one in the middle holds queries, keys and values."""
    check(*call((1, 5, 40), (4, 2), 96))
    check(*call((1, 5, 40), (4, 2), 96, interleaved=True, tables="full"))
    check(*call((1, 3, 10), (1, 1), 512))


def test_more_than_one_block_of_rows_and_panel() -> None:
    check(*call((1, 520, 530), (1, 1), 4))


def test_parts_of_the_mean_square(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normalising, "PART", 16)
    check(*call((1, 5, 50)))


def test_layouts() -> None:
    (x, weight, bias), options = call((1, 9, 20))
    same = check((x, weight, bias), options)
    other = check((x.mT.contiguous().mT, weight.mT.contiguous().mT, bias.repeat_interleave(2)[::2]), options)
    assert all(torch.equal(a, b) for a, b in zip(same, other))
    check((x[:, :1].expand(4, 9, 20), weight, bias), options)


def test_large_and_special_values() -> None:
    """Normalising first: half precision does not overflow where the normalised row fits. NaN stays in its row."""
    (x, weight, bias), options = call((1, 4, 20), dtype=torch.float16)
    check((x * 1000, weight, bias), {**options, "norm_weight": options["norm_weight"] * 100})
    x[0, 1, 3] = float("nan")
    for part in qkv_projection(x, weight, bias, **options):
        assert part[:, :, 1].isnan().all() and not part[:, :, [0, 2, 3]].isnan().any()


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize(
    "fused", [{}, {"norm": False}, {"tables": "full", "interleaved": True, "bias": False}], ids=str
)
def test_gradients_against_float64(fused: dict[str, Any], dtype: Any) -> None:
    (x, weight, bias), options = call(dtype=dtype, **fused)
    norm = options.pop("norm_weight")
    leaves = [t.requires_grad_() for t in (x, weight, bias, norm) if t is not None]
    exact = [t.detach().double().requires_grad_() for t in leaves]
    wide_leaves = dict(zip(map(id, leaves), exact))
    x64, weight64, bias64, norm64 = (
        None if t is None else wide_leaves[id(t)] for t in (x, weight, bias, norm)
    )
    found = qkv_projection(x, weight, bias, norm_weight=norm, **options)
    true = projected(x64, weight64, bias64, norm_weight=norm64, **widened(options))
    grads = [torch.randn(t.shape, generator=torch.Generator().manual_seed(1)).to(dtype) for t in found]
    mine = torch.autograd.grad(found, leaves, grads)
    theirs = torch.autograd.grad(true, exact, [g.double() for g in grads])
    allowed = (
        8 * torch.finfo(dtype).eps
    )  # several roundings to the type: of rows, of the normalised x, of products
    for leaf, a, b in zip(leaves, mine, theirs):
        assert a.dtype == leaf.dtype and a.shape == leaf.shape
        assert (a.double() - b).abs().max() <= allowed * b.abs().max()


def test_only_the_gradients_that_are_needed() -> None:
    (x, weight, bias), options = call()
    options["norm_weight"].requires_grad_()
    sum(t.sum() for t in qkv_projection(x, weight, bias, **options)).backward()
    assert options["norm_weight"].grad is not None and x.grad is None
    options["cos"].requires_grad_()
    with pytest.raises(errors.NoBackwardError, match="cos"):
        qkv_projection(x, weight, bias, **options)[0].sum().backward()


def test_other_batches_stage_nothing_new() -> None:
    check(*call((1, 64, 20)))
    before = len(kernel._cache)
    for batch, length in ((2, 30), (5, 12), (64, 1), (1, 33)):
        check(*call((batch, length, 20), tables="batch"))
    assert len(kernel._cache) == before
