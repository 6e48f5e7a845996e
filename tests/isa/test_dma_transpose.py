"""`nisa.dma_transpose` against explicit loops on stored bits; modes, limits and the share of the copy rate."""

from __future__ import annotations

from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.enums import engine as Engine
from nki.ir import parse_program
from nki.target import get_target
from tests.isa.single import bf16, f32, normal
from tests.isa.tiles import load, run, sbuf, staged, store

DGE = nisa.dge_mode
AXES = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}


def permuted(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(shape[axis] for axis in AXES[len(shape)])


@nki.jit
def from_hbm(x, options):
    t = sbuf(permuted(x.shape), x.dtype)
    nisa.dma_transpose(dst=t, src=x, **options)
    return store(t)


@nki.jit
def from_sbuf(x, options):
    t = sbuf(permuted(x.shape), x.dtype)
    nisa.dma_transpose(dst=t, src=load(x), **options)
    return store(t)


def transposed(x: Any) -> Any:
    """Rule 98, element by element."""
    out = np.zeros(permuted(x.shape), x.dtype)
    for place in product(*map(range, x.shape)):
        out[tuple(place[axis] for axis in AXES[x.ndim])] = x[place]
    return out


@pytest.mark.parametrize("shape", [(16, 128), (3, 5), (4, 3, 6), (2, 3, 4, 5), (1, 1)])
@pytest.mark.parametrize("kernel", [from_hbm, from_sbuf])
@pytest.mark.parametrize("dtype", [f32, bf16, np.uint8, ml_dtypes.float8_e4m3])
def test_rule_98_axes(shape: tuple[int, ...], kernel: Any, dtype: Any) -> None:
    x = np.frombuffer(np.random.default_rng(0).bytes(int(np.prod(shape)) * np.dtype(dtype).itemsize), dtype)
    x = x.reshape(shape)
    expected = transposed(x).tobytes()
    assert run(kernel, x, {}).tobytes() == expected
    assert run(kernel, x, {"axes": AXES[len(shape)]}).tobytes() == expected


def test_documented_shape() -> None:
    """A tall tensor in HBM becomes a wide tile."""
    x = normal((2048, 128))
    np.testing.assert_array_equal(run(from_hbm, x, {}), x.T)


def test_rule_98_into_hbm() -> None:
    """The migration page writes the transpose to a tensor in HBM."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((128, 1, 1, 32), dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_transpose(dst=out, src=x, axes=(3, 1, 2, 0))
        return out

    x = normal((32, 1, 1, 128))
    np.testing.assert_array_equal(run(kernel, x), x.transpose(3, 1, 2, 0))


def test_views_and_transposing_in_place() -> None:
    @nki.jit
    def kernel(x):
        t = load(x)
        nisa.dma_transpose(dst=t[0:4, 1:5], src=t[0:4, 1:5])
        nisa.dma_transpose(dst=t[4:6, ::2], src=t[0:4, 6:8])
        return store(t)

    x = normal((6, 8))
    expected = x.copy()
    expected[:4, 1:5] = x[:4, 1:5].T
    expected[4:6, ::2] = x[:4, 6:8].T
    np.testing.assert_array_equal(run(kernel, x), expected)


def test_packed_elements_stay_whole() -> None:
    @nki.jit
    def kernel(x):
        t = sbuf((3, 2), nl.float8_e5m2_x4)
        nisa.dma_transpose(dst=t, src=x.view(nl.float8_e5m2_x4))
        return store(t.view(nl.uint32))

    x = np.arange(6, dtype=np.uint32).reshape(2, 3) * 0x01020305
    np.testing.assert_array_equal(run(kernel, x, target="trn3"), x.T)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"dst": (8, 4)}, errors.OperandShapeError, "shape [8, 4], the transpose has [8, 2, 2]"),
        ({"dst": (8, 2, 3)}, errors.OperandShapeError, "elements"),
        ({"dst": (2, 2, 8)}, errors.OperandShapeError, "[8, 2, 2]"),
        ({"axes": (1, 0, 2)}, errors.OperandShapeError, "(2, 1, 0)"),
        ({"axes": (1, 0)}, errors.OperandShapeError, "(2, 1, 0)"),
        ({"dtype": nl.float32}, errors.OperandDtypeError, "does not convert"),
        ({"dge_mode": DGE.swdge}, errors.RuleError, "gathered rows"),
        ({"dge_mode": DGE.hwdge}, errors.RuleError, "shape[0] * shape[-2] = 4"),
        ({"oob_mode": nisa.oob_mode.skip}, errors.RuleError, "gathered rows"),
        ({"priority": 1}, errors.TargetError, "class of service"),
        ({"dge_mode": 3}, errors.ArgumentError, "dge_mode"),
    ],
)
def test_refused(changes: dict[str, Any], error: type[Exception], words: str) -> None:
    @nki.jit
    def kernel(x, options):
        given = dict(options)
        t = sbuf(given.pop("dst", (8, 2, 2)), given.pop("dtype", x.dtype))
        nisa.dma_transpose(dst=t, src=x, **given)

    with pytest.raises(error) as raised:
        kernel.ir(normal((2, 2, 8), bf16), changes, target="trn2")
    assert words in str(raised.value) and raised.value.remedy  # type: ignore[attr-defined]


@pytest.mark.parametrize("shape", [(12,), (2, 1, 2, 1, 3)])
def test_rank(shape: tuple[int, ...]) -> None:
    @nki.jit
    def kernel(x):
        nisa.dma_transpose(dst=sbuf((1, 12), x.dtype), src=x)

    with pytest.raises(errors.OperandShapeError, match="two to four axes"):
        kernel.ir(normal(shape, bf16), target="trn2")


@pytest.mark.parametrize(
    ("shape", "dtype", "words"),
    [
        ((16, 128), bf16, None),
        ((16, 100), np.uint16, None),
        ((8, 2, 128), bf16, None),
        ((4, 3, 4, 5), bf16, None),
        ((1, 16, 7), np.float16, None),
        ((16, 129), bf16, "at most 128"),
        ((16, 128), f32, "2 bytes"),
        ((32, 128), bf16, "32 rows"),
        ((8, 128), bf16, "8 rows"),
        ((3, 16, 5), bf16, "1, 2, 4, 8, 16"),
        ((32, 16, 5), bf16, "1, 2, 4, 8, 16"),
        ((8, 3, 5), bf16, "24"),
        ((8, 2, 3, 5), bf16, "24"),
    ],
)
def test_rule_100_hardware_descriptors(shape: tuple[int, ...], dtype: Any, words: str | None) -> None:
    """What hwdge takes; a transpose that does not ask gets it where it can."""

    @nki.jit
    def kernel(x, options):
        t = nl.ndarray(permuted(x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_transpose(dst=t, src=x, **options)
        return t

    x = np.zeros(shape, dtype)
    (usual,) = staged(kernel, "dma_transpose", x, {}, target="trn2")
    if words is None:
        assert usual.dge_mode is DGE.hwdge  # type: ignore[attr-defined]
        assert staged(kernel, "dma_transpose", x, {"dge_mode": DGE.hwdge}, target="trn3")
        return
    assert usual.dge_mode is DGE.none  # type: ignore[attr-defined]
    with pytest.raises(errors.RuleError) as raised:
        kernel.ir(x, {"dge_mode": DGE.hwdge}, target="trn2")
    assert words in str(raised.value)


def test_rule_97_modes_by_target() -> None:
    x = normal((16, 128), bf16)
    (old,) = staged(from_hbm, "dma_transpose", x, {}, target="trn1")
    assert old.dge_mode is DGE.none and old.engine is Engine.sync  # type: ignore[attr-defined]
    (plain,) = staged(from_hbm, "dma_transpose", x, {"dge_mode": DGE.none}, target="trn2")
    assert plain.dge_mode is DGE.none  # type: ignore[attr-defined]
    with pytest.raises(errors.TargetError, match="does not exist on trn1"):
        from_hbm.ir(x, {"dge_mode": DGE.hwdge}, target="trn1")


@pytest.mark.parametrize("priority", [0, 3])
def test_rule_102_priority(priority: int) -> None:
    x = normal((4, 6))
    np.testing.assert_array_equal(run(from_hbm, x, {"priority": priority}, target="trn3"), x.T)


def test_text_form() -> None:
    program = from_hbm.ir(normal((16, 128), bf16), {"axes": (1, 0)}, target="trn2")
    assert str(parse_program(str(program))) == str(program)


@pytest.mark.parametrize(
    ("kernel", "shape", "target", "efficiency"),
    [
        (from_hbm, (512, 128), "trn2", 0.9),
        (from_sbuf, (128, 128), "trn2", 0.5),
        (from_hbm, (512, 64), "trn2", 0.45),
        (from_hbm, (8, 128), "trn2", 0.45),
        (from_hbm, (512, 128), "trn1", 0.1),
    ],
)
def test_cost(kernel: Any, shape: tuple[int, ...], target: str, efficiency: float) -> None:
    """A share of the copy rate, for whole blocks of 128 by 16; rows of the source are the descriptors."""
    node = staged(kernel, "dma_transpose", normal(shape, bf16), {}, target=target)[0]
    (phase,) = node.cost(get_target(target))
    transfer = phase.transfer
    assert transfer is not None and transfer.efficiency == pytest.approx(efficiency)
    assert transfer.total_bytes == 2 * shape[0] * shape[1] and transfer.descriptor_bytes % (2 * shape[1]) == 0


def test_cost_of_single_bytes() -> None:
    """Elements that the engines do not transpose are copied one by one."""
    node = staged(from_hbm, "dma_transpose", np.zeros((32, 64), np.uint8), {}, target="trn2")[0]
    (phase,) = node.cost(get_target("trn2"))
    assert phase.transfer is not None
    assert (phase.transfer.descriptors, phase.transfer.descriptor_bytes) == (32 * 64, 1)
