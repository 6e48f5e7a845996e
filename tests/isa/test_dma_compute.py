"""`nisa.dma_compute`: sums in float32 against explicit loops; limits, and what is moved."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.ir import parse_program
from nki.target import get_target
from tests.isa.single import bf16, f32, normal
from tests.isa.tiles import load, run, sbuf, staged, store, whole_numbers


@nki.jit
def add_tiles(tensors, dtype, options):
    """The sum, in SBUF, of tiles and of tensors in HBM in turn."""
    out = sbuf(tensors[0].shape, dtype)
    srcs = [tensor if i % 2 else load(tensor) for i, tensor in enumerate(tensors)]
    nisa.dma_compute(dst=out, srcs=srcs, reduce_op=nl.add, **options)
    return store(out)


def summed(tensors: Any, dtype: Any) -> Any:
    """Rule 101: float32 from left to right, one rounding."""
    total = tensors[0].astype(f32)
    for tensor in tensors[1:]:
        total = total + tensor.astype(f32)
    return total.astype(dtype)


@pytest.mark.parametrize("count", [1, 2, 3, 16])
@pytest.mark.parametrize("dtype", [f32, bf16])
def test_rule_101_sums(count: int, dtype: Any) -> None:
    tensors = tuple(normal((8, 24), dtype, seed) for seed in range(count))
    np.testing.assert_array_equal(run(add_tiles, tensors, dtype, {}), summed(tensors, dtype))


def test_rule_101_one_rounding() -> None:
    """256 + 1/2 + 1/2 + 1: in bfloat16 each of these additions would be lost."""
    tensors = tuple(np.full((1, 2), value, bf16) for value in (256, 0.5, 0.5, 1))
    assert run(add_tiles, tensors, nl.bfloat16, {})[0].astype(f32).tolist() == [258, 258]


def test_rules_3_101_mixed_dtypes_are_cast() -> None:
    tensors = (np.array([[1, -7]], np.int32), np.array([[0.5, 0.25]], f32), np.array([[2, 4]], bf16))
    assert run(add_tiles, tensors, nl.int8, {}).tolist() == [[4, -3]]
    assert run(add_tiles, tensors, nl.float32, {}).tolist() == [[3.5, -2.75]]


@pytest.mark.parametrize("scales", [None, [1.0, 1.0], (1, 1)])
def test_rule_101_scales_of_one(scales: Any) -> None:
    tensors = (whole_numbers((4, 6)), whole_numbers((4, 6), seed=1))
    found = run(add_tiles, tensors, nl.float32, {"scales": scales, "unique_indices": True})
    np.testing.assert_array_equal(found, tensors[0] + tensors[1])


@nki.jit
def accumulate(x, y, steps):
    """The loop of the migration page: the first step copies, the others add to what is there."""
    total = sbuf(x.shape, x.dtype)
    for step in range(steps):
        if step == 0:
            nisa.dma_copy(dst=total, src=x)
        else:
            nisa.dma_compute(dst=total, srcs=[y, total], reduce_op=nl.add, unique_indices=True)
    return store(total)


def test_rule_101_dst_among_the_sources() -> None:
    x, y = whole_numbers((16, 8)), whole_numbers((16, 8), seed=1)
    np.testing.assert_array_equal(run(accumulate, x, y, 5), x + 4 * y)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_dst_at_every_place(place: int) -> None:
    """What is added is what `dst` held before, wherever it stands in the list."""

    @nki.jit
    def kernel(x, y, z):
        tiles = [x, y]
        total = load(z)
        tiles.insert(place, total)
        nisa.dma_compute(total, tiles, nl.add)
        return store(total)

    x, y, z = (whole_numbers((3, 5), seed=seed) for seed in range(3))
    np.testing.assert_array_equal(run(kernel, x, y, z), x + y + z)


def test_rule_181_row_major_pairing_and_hbm_to_hbm() -> None:
    @nki.jit
    def kernel(x, y):
        out = nl.ndarray((2, 3, 4), dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_compute(dst=out, srcs=[x, y.permute((1, 0))], reduce_op=np.add)
        return out

    x, y = whole_numbers((24,)), whole_numbers((6, 4), seed=1)
    np.testing.assert_array_equal(run(kernel, x, y), (x + y.T.reshape(-1)).reshape(2, 3, 4))


def test_overlapping_windows() -> None:
    @nki.jit
    def kernel(x):
        t = load(x)
        nisa.dma_compute(dst=t[:, 1:], srcs=[t[:, :7], t[:, 1:], t[:, :7]], reduce_op=nl.add)
        return store(t)

    x = whole_numbers((2, 8))
    expected = x.copy()
    expected[:, 1:] = 2 * x[:, :7] + x[:, 1:]
    np.testing.assert_array_equal(run(kernel, x), expected)


def test_writes_an_argument() -> None:
    @nki.jit
    def kernel(x, y):
        nisa.dma_compute(dst=x, srcs=[x, y], reduce_op=nl.add)
        return x

    x, y = whole_numbers((3, 4)), whole_numbers((3, 4), seed=1)
    expected = x + y
    np.testing.assert_array_equal(run(kernel, x, y), expected)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"srcs": 17}, errors.LimitError, "at most 16"),
        ({"scales": [1.0]}, errors.RuleError, "[1.0, 1.0]"),
        ({"scales": [1.0, 2.0]}, errors.RuleError, "tensor_scalar"),
        ({"scales": 1.0}, errors.ArgumentError, "a list of numbers"),
        ({"reduce_op": nl.multiply}, errors.OperatorError, "nl.add"),
        ({"oob_mode": nisa.oob_mode.skip}, errors.RuleError, "gathers and scatters"),
        ({"dst": (2, 4)}, errors.OperandShapeError, "`srcs[0]`"),
        ({"buffer": nl.psum}, errors.MemoryError_, "psum"),
        ({"dtype": nl.float8_e5m2_x4}, errors.OperandDtypeError, "float8_e5m2_x4"),
    ],
)
def test_refused(changes: dict[str, Any], error: type[Exception], words: str) -> None:
    @nki.jit
    def kernel(x, options):
        given = {"reduce_op": nl.add, **options}
        shape, dtype = given.pop("dst", x.shape), given.pop("dtype", x.dtype)
        dst = nl.ndarray(shape, dtype=dtype, buffer=given.pop("buffer", nl.sbuf))
        nisa.dma_compute(dst=dst, srcs=[x] * given.pop("srcs", 2), **given)

    with pytest.raises(error) as raised:
        kernel.ir(normal((2, 3)), changes, target="trn3")
    assert words in str(raised.value) and raised.value.remedy  # type: ignore[attr-defined]


def test_srcs_is_a_list() -> None:
    @nki.jit
    def kernel(x):
        nisa.dma_compute(dst=sbuf(x.shape), srcs=x, reduce_op=nl.add)

    with pytest.raises(errors.ArgumentError, match="`srcs` must be a list of tensors"):
        kernel.ir(normal((2, 3)), target="trn2")


def test_every_source_must_have_been_written() -> None:
    @nki.jit
    def kernel(x):
        out, empty = sbuf(x.shape), sbuf(x.shape)
        nisa.dma_compute(dst=out, srcs=[x, empty], reduce_op=nl.add)
        return store(out)

    with pytest.raises(errors.UninitializedReadError, match=r"`srcs\[1\]`"):
        run(kernel, normal((2, 3)))


def test_text_form() -> None:
    program = add_tiles.ir((normal((2, 3)), normal((2, 3))), nl.float32, {"scales": [1, 1.0]}, target="trn2")
    text = str(program)
    assert "scales=[1, 1.0]" in text and str(parse_program(text)) == text


@pytest.mark.parametrize("count", [1, 2, 3])
def test_cost(count: int) -> None:
    """Every source is moved, at half the rate of a copy where something is added."""
    tensors = tuple(normal((128, 512)) for _ in range(count))
    (node,) = staged(add_tiles, "dma_compute", tensors, nl.float32, {}, target="trn2")
    transfers = [phase.transfer for phase in node.cost(get_target("trn2"))]
    assert len(transfers) == count
    for transfer in transfers:
        assert transfer is not None and transfer.total_bytes == 128 * 512 * 4
        assert transfer.efficiency == (0.5 if count > 1 else 1.0)
