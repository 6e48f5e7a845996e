"""Constants of a program (rules 57, 155, 183): values, sharing between places and cores, files, refusals."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors

TABLE = np.arange(12, dtype=np.float32).reshape(3, 4)


@nki.jit
def from_constant(constant):
    values = nl.shared_constant(constant)
    assert values.buffer is nl.shared_hbm
    out = nl.ndarray(values.shape, values.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=values)
    return out


@nki.jit
def from_table():
    again = nl.shared_constant(TABLE + 0)
    out = nl.ndarray(again.shape, again.dtype, buffer=nl.shared_hbm)
    tile = nl.load(nl.shared_constant(TABLE))
    nl.store(out, nl.add(tile, nl.load(again)))
    return out


def test_values_from_the_kernel():
    assert (from_table() == 2 * TABLE).all()
    constants = [buffer for buffer in from_table.ir().buffers if buffer.role == "constant"]
    assert len(constants) == 1, "one tensor for equal values"


@pytest.mark.parametrize("eager", [False, True])
def test_values_from_a_file(tmp_path, eager):
    path = str(tmp_path / "table.npy")
    np.save(path, TABLE)
    run = nki.simulate(from_constant, eager=eager)
    assert (run(path) == TABLE).all()
    np.save(path, TABLE + 1)
    assert (run(path) == TABLE + 1).all(), "never a stale file"


@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, np.int8, np.uint32, np.float16])
def test_dtypes(kind, tmp_path):
    values = np.array([1, 2, 3], kind)

    def kernel():
        found = nl.shared_constant(values)
        out = nl.ndarray(found.shape, found.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=found)
        return out

    found = nki.simulate(kernel)()
    assert found.dtype == values.dtype and (found == values).all()


@pytest.mark.parametrize("kind", [np.bool_, ml_dtypes.float8_e4m3, np.float64])
def test_refused_dtypes(kind):
    values = np.ones(3, kind)
    with pytest.raises(errors.DtypeError, match="shared_constant"):
        nki.simulate(lambda: nl.shared_constant(values))()


def test_refused_things(tmp_path):
    with pytest.raises(errors.ArgumentError, match="known while staging"):
        nki.simulate(lambda: nl.shared_constant([1, 2]))()
    with pytest.raises(errors.ArgumentError, match=r"as a \.npy file"):
        nki.simulate(lambda: nl.shared_constant(str(tmp_path / "absent.npy")))()
    np.savez(tmp_path / "several.npz", TABLE)
    with pytest.raises(errors.ArgumentError, match="several arrays"):
        nki.simulate(lambda: nl.shared_constant(tmp_path / "several.npz"))()
    with pytest.raises(errors.ReturnError, match="is a constant"):
        nki.simulate(lambda: nl.shared_constant(TABLE))()


def test_two_cores_share_it():
    @nki.jit
    def kernel():
        out = nl.ndarray((2, *TABLE.shape), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out[nl.program_id(0)], src=nl.shared_constant(TABLE))
        return out

    assert (nki.simulate(kernel[2])() == TABLE).all()

    @nki.jit
    def diverging():
        nl.shared_constant(TABLE + nl.program_id(0))

    with pytest.raises(errors.KernelError, match="core 1 makes a constant"):
        nki.simulate(diverging[2])()


@nki.jit
def identities(kind):
    large = nl.shared_identity_matrix(64, dtype=kind)
    small = nl.shared_identity_matrix(n=32, dtype=kind)
    own = nl.ndarray((32, 32), nl.bfloat16)
    assert nl.shared_identity_matrix(32, dst=own) is own
    assert large.buffer is nl.sbuf and small.access.buffer is large.access.buffer
    outs = []
    for tile in (large, small, own):
        out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        outs.append(out)
    return tuple(outs)


@pytest.mark.parametrize("kind", [nl.uint8, nl.float32, nl.bfloat16, nl.float8_e4m3])
@pytest.mark.parametrize("eager", [False, True])
def test_identity_matrices(kind, eager):
    large, small, own = nki.simulate(identities, eager=eager)(kind)
    for found, size in ((large, 64), (small, 32), (own, 32)):
        assert (found.astype(np.float32) == np.eye(size)).all()


def test_identity_matrix_has_a_default_dtype_and_a_limit():
    def kernel(n):
        assert nl.shared_identity_matrix(n).dtype == "uint8"

    nki.simulate(kernel)(8)
    with pytest.raises(errors.PartitionLimitError, match="shared_identity_matrix"):
        nki.simulate(kernel)(1000)


def test_identity_matrix_of_a_loop_stays_inside_it():
    @nki.jit
    def kernel(a):
        out = nl.ndarray((32, 32), nl.float32, buffer=nl.shared_hbm)

        def body(i):
            nl.store(out, nl.shared_identity_matrix(32, dtype=nl.float32))

        nl.fori_loop(0, 2, body)
        nl.store(out, nl.shared_identity_matrix(32, dtype=nl.float32))
        return out

    assert (kernel(np.zeros(1, np.float32)) == np.eye(32)).all()
