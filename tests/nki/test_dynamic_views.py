"""Views whose place the device decides: shapes, what they keep, and every constraint (semantics rules 33-43)."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.dtypes import as_dtype
from nki.enums import MemoryRegion
from nki.ir.control import Register
from nki.ir.program import Access, Buffer
from nki.registers import VirtualRegister
from nki.tensor import NkiTensor
from tests.isa.dynamic import column, everywhere, one
from tests.isa.tiles import load, sbuf, store

REGISTER = VirtualRegister(Register("n"))


def tensor(*shape, dtype="float32", memory=MemoryRegion.private_hbm):
    return NkiTensor._of(Access.whole(Buffer("t", shape, as_dtype(dtype), memory, label="t")))


def tile(*shape, dtype="int32"):
    return tensor(*shape, dtype=dtype, memory=MemoryRegion.sbuf)


HBM = tensor(4, 6, 8)
CHIP = tile(16, 6, 8, dtype="float32")
ONE, COLUMN = tile(1, 1), tile(5, 1)


@pytest.mark.parametrize(
    ("view", "shape", "stride", "legal"),
    [
        (HBM.select(0, REGISTER), (6, 8), 48, 4),
        (HBM.select(1, ONE), (4, 8), 8, 6),
        (HBM[REGISTER], (6, 8), 48, 4),
        (HBM[:, ONE, 2:4], (4, 2), 8, 6),
        (HBM[1, nl.ds(REGISTER, 2)], (2, 8), 8, 5),
        (HBM.vector_select(0, COLUMN), (5, 6, 8), 48, 4),
        (HBM[:, 1:3].vector_select(0, COLUMN), (5, 2, 8), 48, 4),
        (HBM.ap([[8, 3], [1, 2]], scalar_offset=ONE, indirect_dim=2), (3, 2), 1, 8),
        (HBM.ap([[8, 3], [1, 2]], scalar_offset=REGISTER), (3, 2), 48, 4),
        (HBM.ap([[1, 5], [1, 4]], vector_offset=COLUMN), (5, 4), 48, 4),
        (CHIP.select(1, REGISTER), (16, 8), 8, 6),
        (CHIP[0:4, :, nl.ds(REGISTER, 3)], (4, 6, 3), 1, 6),
        (CHIP.ap([[48, 16], [1, 48]], scalar_offset=ONE, indirect_dim=1), (16, 48), 8, 1),
        (tile(16, 64).indirect(tile(16, 2, dtype="uint32")), (16, 32), 1, 64),
        (tile(16, 64)[:, ::2].indirect(tile(16, 2), num_elem=5), (16, 5), 2, 32),
        (CHIP.indirect(tile(16, 1)), (16, 16), 1, 48),
    ],
)
def test_shape_stride_and_legal_values(view, shape, stride, legal):
    assert view.is_indirect() and view.shape == shape
    assert (view.access.dynamic.stride, view.access.places()) == (stride, legal)


def test_static_views_are_not_indirect():
    assert not HBM.is_indirect() and not HBM[0].is_indirect() and not HBM.ap([[1, 3]]).is_indirect()


def test_an_offset_of_another_dtype_counts_positions_of_the_tensor():
    """OPEN in rule 38: here the index counts elements of the tensor that `ap` is called on."""
    view = tensor(4, 6).ap([[1, 2]], scalar_offset=ONE, indirect_dim=1, dtype="bfloat16")
    assert view.access.dynamic.stride == 2
    with pytest.raises(errors.ShapeError, match="whole number"):
        tensor(4, 6, dtype="uint8").ap([[1, 2]], scalar_offset=ONE, indirect_dim=1, dtype="float32")


@pytest.mark.parametrize(
    ("view", "shape"),
    [
        (lambda t: t.select(0, REGISTER)[2:4, 1], (2,)),
        (lambda t: t.select(0, REGISTER).permute((1, 0)), (8, 6)),
        (
            lambda t: t.select(1, REGISTER).reshape((32,)) if False else t.select(0, REGISTER).reshape((48,)),
            (48,),
        ),
        (lambda t: t.vector_select(0, COLUMN)[:, 1:3, 0], (5, 2)),
        (lambda t: t.vector_select(0, COLUMN).permute((0, 2, 1)), (5, 8, 6)),
        (lambda t: t.vector_select(0, COLUMN).reshape((5, 48)), (5, 48)),
        (lambda t: t.vector_select(0, COLUMN).reshape_dim(2, (2, 4)), (5, 6, 2, 4)),
        (lambda t: t.vector_select(0, COLUMN).flatten_dims(1, 2), (5, 48)),
        (lambda t: t.vector_select(0, COLUMN).expand_dim(1), (5, 1, 6, 8)),
        (lambda t: t.vector_select(0, tile(1, 1)).reshape((1, 8, 6)), (1, 8, 6)),
        (lambda t: t.vector_select(0, COLUMN).slice(2, 0, 8, 2), (5, 6, 4)),
        (lambda t: t.vector_select(0, COLUMN).rearrange(("r", "a", "b"), ("r", ("b", "a"))), None),
    ],
)
def test_views_keep_the_index(view, shape):
    if shape is None:
        with pytest.raises(errors.ShapeError):
            view(HBM)
        return
    made = view(HBM)
    assert made.shape == shape and made.is_indirect()


def on_rows(function):
    return lambda: function(HBM.vector_select(0, COLUMN))


@pytest.mark.parametrize(
    ("use", "error", "words"),
    [
        # one dynamic index per view (rule 41)
        (lambda: HBM.select(0, REGISTER).select(0, REGISTER), errors.KernelError, ["one dynamic index"]),
        (lambda: HBM.select(0, REGISTER)[ONE], errors.KernelError, ["one dynamic index"]),
        (lambda: HBM.select(0, ONE).vector_select(0, COLUMN), errors.KernelError, ["vector_select"]),
        (on_rows(lambda v: v.ap([[1, 5]])), errors.KernelError, ["another pattern"]),
        (lambda: HBM[REGISTER, ONE], errors.KernelError, ["2 indices", "dimensions 0, 1"]),
        (
            lambda: HBM.ap([[8, 5], [1, 8]], scalar_offset=ONE, vector_offset=COLUMN),
            errors.ArgumentError,
            ["exclude each other"],
        ),
        # rows stay
        (on_rows(lambda v: v[0:2]), errors.ShapeError, ["dimension 0", "index tile"]),
        (on_rows(lambda v: v[0]), errors.ShapeError, ["dimension 0"]),
        (on_rows(lambda v: v.slice(0, 1, 3)), errors.ShapeError, ["dimension 0"]),
        (on_rows(lambda v: v.select(0, 1)), errors.ShapeError, ["dimension 0"]),
        (on_rows(lambda v: v.permute((1, 0, 2))), errors.ShapeError, ["dimension 0"]),
        (on_rows(lambda v: v.expand_dim(0)), errors.ShapeError, ["dimension 0"]),
        (on_rows(lambda v: v.reshape((30, 8))), errors.ShapeError, ["dimension 0"]),
        (on_rows(lambda v: v.flatten_dims(0, 1)), errors.ShapeError, []),
        (on_rows(lambda v: v.reshape_dim(0, (5, 1))), errors.ShapeError, ["dimension 0"]),
        # no reinterpretation afterwards (rule 32)
        (on_rows(lambda v: v.view("int32")), errors.ShapeError, ["keeps its dtype"]),
        (lambda: HBM.select(0, ONE).view("int32"), errors.ShapeError, ["dtype=..."]),
        # where the tensor and the index live, and how many values
        (lambda: CHIP.select(0, REGISTER), errors.ShapeError, ["partitions", "indirect_dim=1"]),
        (lambda: CHIP[REGISTER], errors.ShapeError, ["partitions"]),
        (lambda: CHIP.ap([[48, 1], [1, 4]], scalar_offset=ONE), errors.ShapeError, ["partitions"]),
        (lambda: CHIP.vector_select(0, COLUMN), errors.MemoryError_, ["HBM", "nc_n_gather"]),
        (lambda: HBM.vector_select(1, COLUMN), errors.ShapeError, ["dimension 0, not 1"]),
        (lambda: HBM.ap([[8, 5]], vector_offset=COLUMN, indirect_dim=1), errors.ShapeError, ["not 1"]),
        (lambda: HBM.select(0, tensor(1, 1, dtype="int32")), errors.MemoryError_, ["sbuf", "dma_copy"]),
        (lambda: HBM.select(0, COLUMN), errors.ShapeError, ["5 values", "vector_select"]),
        (lambda: HBM.select(0, tile(1, 1, dtype="float32")), errors.DtypeError, ["float32", "int32, uint32"]),
        (lambda: HBM.vector_select(0, tile(5, 1, dtype="int16")), errors.DtypeError, ["int16"]),
        (lambda: HBM.vector_select(0, REGISTER), errors.ArgumentError, ["tile in SBUF"]),
        (lambda: HBM.ap([[8, 5], [1, 8]], scalar_offset=3), errors.ArgumentError, ["static offset"]),
        (lambda: HBM.ap([[8, 9], [1, 8]], vector_offset=COLUMN), errors.ShapeError, ["5 indices for 9 rows"]),
        (
            lambda: HBM.ap([[8, 5], [1, 8]], scalar_offset=ONE, indirect_dim=3),
            errors.BoundsError,
            ["indirect_dim"],
        ),
        (
            lambda: HBM.select(0, tile(2, 4)[0:1, nl.ds(REGISTER, 1)]),
            errors.KernelError,
            ["dynamic place itself"],
        ),
        # static parts are checked as ever
        (lambda: HBM.select(3, REGISTER), errors.BoundsError, ["3 dimensions"]),
        (lambda: HBM[nl.ds(REGISTER, 5)], errors.BoundsError, ["nl.ds(0, 5)"]),
        (lambda: HBM[REGISTER, 9], errors.BoundsError, ["index 9"]),
        (lambda: HBM.ap([[48, 5], [1, 8]], scalar_offset=REGISTER), errors.BoundsError, ["0..191"]),
        (lambda: HBM[REGISTER:4], errors.KernelError, ["value of the device", "nl.ds"]),
        # tensor indirection (rule 42)
        (lambda: HBM.indirect(COLUMN), errors.MemoryError_, ["sbuf or psum"]),
        (lambda: CHIP.indirect(COLUMN), errors.ShapeError, ["(16, K)"]),
        (lambda: CHIP.indirect(tile(16, 1), num_elem=17), errors.ShapeError, ["17 offsets"]),
        (lambda: CHIP.indirect(tile(16, 1, dtype="float32")), errors.DtypeError, ["float32"]),
        (lambda: CHIP.indirect(REGISTER), errors.ArgumentError, ["tile of offsets"]),
        (lambda: CHIP.permute((0, 2, 1)).indirect(tile(16, 1)), errors.ShapeError, ["strides"]),
        (lambda: CHIP.indirect(tile(16, 1))[:, 0:2], errors.ShapeError, ["before calling .indirect()"]),
    ],
)
def test_refused(use, error, words):
    with pytest.raises(error) as caught:
        use()
    text = str(caught.value)
    for word in words:
        assert word in text
    assert caught.value.remedy and caught.value.span.file == __file__


def test_values_of_views_of_dynamic_views():
    @nki.jit
    def kernel(x, n, rows):
        index, picked = load(n), x.vector_select(0, load(rows))
        first, second, third = sbuf((8, 2)), sbuf((3, 4, 6)), sbuf((3, 2))
        nisa.dma_copy(dst=first, src=x.select(0, index)[1:3].permute((1, 0)))
        nisa.dma_copy(dst=second, src=picked[:, :, 2:6].permute((0, 2, 1)))
        nisa.dma_copy(dst=third, src=picked.reshape((3, 48))[:, 5:7])
        return store(first), store(second), store(third)

    x = np.arange(192, dtype=np.float32).reshape(4, 6, 8)
    for n, rows in ((2, [3, 0, 3]), (0, [1, 2, 0])):
        first, second, third = everywhere(kernel, x, one(n), column(*rows))
        assert first.tolist() == x[n, 1:3].T.tolist()
        for p, row in enumerate(rows):
            assert second[p].tolist() == x[row][:, 2:6].T.tolist()
            assert third[p].tolist() == x[row].reshape(-1)[5:7].tolist()


def test_eager_mode_shows_values():
    seen = []

    @nki.jit
    def kernel(x, n):
        index = load(n)
        view = x.select(0, index)
        seen.append(view.numpy().tolist())
        seen.append(x.vector_select(0, index).numpy().tolist())
        tile = sbuf((6, 8))
        nisa.dma_copy(dst=tile, src=view)
        return store(tile)

    x = np.arange(192, dtype=np.float32).reshape(4, 6, 8)
    nki.simulate(kernel, eager=True)(x, one(3))
    assert seen == [x[3].tolist(), [x[3].tolist()]]


def test_assignment_to_a_dynamic_place():
    @nki.jit
    def kernel(x, n):
        register = nisa.register_alloc()
        nisa.register_load(register, n)
        tile = load(x)
        tile[:, nl.ds(register, 2)] = 0.0
        x[register] = tile[0:1]
        return x

    x = np.arange(1, 17, dtype=np.float32).reshape(4, 4)
    for n in (0, 2):
        row = x[0].copy()
        row[n : n + 2] = 0
        expected = x.copy()
        expected[n] = row
        assert everywhere(kernel, x, one(n)).tolist() == expected.tolist()
