"""Tensor indirection (trn3): columns by lists of offsets on compute instructions (semantics rules 42, 43)."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.isa.dynamic import everywhere
from tests.isa.tiles import load, psum, sbuf, store, whole_numbers

BF16 = ml_dtypes.bfloat16


def offsets(partitions, columns, most, seed=0, dtype=np.uint32):
    return (
        np.random.default_rng(seed)
        .permutation(np.arange(partitions * columns) % most)
        .reshape(partitions, columns)
        .astype(dtype)
    )


def snake(index, group, partition, i):
    """Offset i of the group that a partition belongs to (rule 42)."""
    first = partition // group * group
    size = min(group, len(index))
    return int(index[first + i % size, i // size])


@pytest.mark.parametrize(("partitions", "count"), [(8, 8), (16, 20), (32, 7), (128, 32)])
@pytest.mark.parametrize("dtype", ["f4", BF16, "i4"])
def test_rule_42_gather(partitions, count, dtype):
    @nki.jit
    def kernel(x, index):
        tile, out = load(x), sbuf((partitions, count), x.dtype)
        nisa.tensor_copy(dst=out, src=tile.indirect(load(index), num_elem=count))
        return store(out)

    x = whole_numbers((partitions, 40), 0, 100).astype(dtype)
    index = offsets(partitions, 2, 40)
    out = everywhere(kernel, x, index, target="trn3")
    for p in range(partitions):
        for i in range(count):
            assert out[p, i] == x[p, snake(index, 16, p, i)]


def test_rule_42_scatter():
    @nki.jit
    def kernel(x, index):
        tile, out = load(x), sbuf((32, 10))
        nisa.memset(dst=out, value=-1.0)
        nisa.tensor_scalar(dst=out.indirect(load(index), 6), data=tile, op0=nl.add, operand0=1.0)
        return store(out)

    x, index = whole_numbers((32, 6)), offsets(32, 1, 10)
    expected = np.full((32, 10), -1, np.float32)
    for p in range(32):
        for i in range(6):
            expected[p, snake(index, 16, p, i)] = x[p, i] + 1
    assert everywhere(kernel, x, index, target="trn3").tolist() == expected.tolist()


def test_rule_42_groups_of_32_on_the_tensor_engine():
    @nki.jit
    def kernel(a, b, index):
        left, right, out = load(a), load(b), psum((4, 20))
        nisa.nc_matmul(dst=out, stationary=left, moving=right.indirect(load(index), 20))
        return store(out)

    a, b = whole_numbers((64, 4)).astype(BF16), whole_numbers((64, 24), seed=1).astype(BF16)
    index = offsets(64, 1, 24)
    picked = np.zeros((64, 20), np.float32)
    for p in range(64):
        for i in range(20):
            picked[p, i] = b[p, snake(index, 32, p, i)]
    out = everywhere(kernel, a, b, index, target="trn3")
    assert out.tolist() == (a.astype(np.float32).T @ picked).tolist()


def test_offsets_outside_the_partition():
    @nki.jit
    def kernel(x, index):
        tile, out = load(x), sbuf((16, 3))
        nisa.tensor_copy(dst=out, src=tile.indirect(load(index), 3))
        return store(out)

    index = np.zeros((16, 1), np.int32)
    index[2] = 8
    with pytest.raises(errors.DynamicBoundsError, match=r"index 8 \(partition 2.*0\.\.7"):
        nki.simulate(kernel, target="trn3")(whole_numbers((16, 8)), index)


def refusal(build, error, *words, target="trn3"):
    @nki.jit
    def kernel(x, index):
        build(load(x), load(index))
        return x

    with pytest.raises(error) as caught:
        nki.simulate(kernel, target=target)(np.zeros((32, 8), np.float32), np.zeros((32, 2), np.int32))
    for word in words:
        assert word in str(caught.value)


def test_rule_43_where_offsets_are_refused():
    def copy(x, index):
        nisa.tensor_copy(dst=sbuf((32, 4)), src=x.indirect(index, 4))

    refusal(copy, errors.TargetError, "trn3", target="trn2")
    refusal(
        lambda x, index: nisa.tensor_tensor(
            dst=sbuf((32, 4)), data1=x[:, 0:4], data2=x.indirect(index, 4), op=nl.add
        ),
        errors.RuleError,
        "`data2`",
        "dst, data1",
    )
    refusal(
        lambda x, index: nisa.tensor_copy(dst=sbuf((32, 64)), src=x.indirect(index)),
        errors.OperandShapeError,
        "num_elem",
        "at most 32",
    )
    refusal(
        lambda x, index: nisa.tensor_copy(
            dst=sbuf((32, 4)), src=x.indirect(index, 4), engine=nisa.engine.gpsimd
        ),
        errors.EngineError,
        "tensor indirection",
    )
    refusal(
        lambda x, index: nisa.tensor_copy(
            dst=psum((32, 8)).indirect(index, 4), src=x[:, 0:4], engine=nisa.engine.scalar
        ),
        errors.EngineError,
        "cannot scatter to PSUM",
    )
    refusal(
        lambda x, index: nisa.tensor_scalar(
            dst=sbuf((32, 4), nl.int32), data=x.view(nl.int32).indirect(index, 4), op0=nl.add, operand0=1
        ),
        errors.RuleError,
        "32-bit integer",
    )
    refusal(
        lambda x, index: nisa.nc_matmul(dst=psum((8, 4)), stationary=x, moving=x.indirect(index, 4)),
        errors.RuleError,
        "bfloat16",
    )


def test_rule_43_offsets_start_on_a_quadrant():
    @nki.jit
    def kernel(x, index):
        tile, where, out = load(x), load(index), sbuf((64, 4))
        nisa.tensor_copy(dst=out[32:48], src=tile[32:48].indirect(where[16:32], 4))
        return x

    found = kernel.check(np.zeros((64, 8), np.float32), np.zeros((64, 2), np.int32), target="trn3")
    assert any("multiple of 32" in d.message and d.severity == "warning" for d in found)
