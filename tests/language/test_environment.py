"""What a kernel can ask: tile sizes, memories, program ids; ranges and names of older releases."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.ir.builder import Builder
from nki.ir.parser import parse_program
from nki.target import get_target
from tests.language.run import stage


def test_memories():
    assert nl.hbm is nl.private_hbm and nl.MemoryRegion.sbuf is nl.sbuf
    assert nl.is_hbm(nl.hbm) and nl.is_hbm(nl.shared_hbm) and not nl.is_hbm(nl.sbuf)
    assert nl.is_on_chip(nl.psum) and nl.is_on_chip(nl.sbuf) and not nl.is_on_chip(nl.hbm)
    assert nl.is_psum(nl.psum) and not nl.is_psum(nl.sbuf) and nl.is_sbuf(nl.sbuf) and not nl.is_sbuf(None)


def test_tile_size(monkeypatch):
    """Rule 55."""
    size = nl.tile_size
    found = (size.pmax, size.psum_bank_fmax, size.psum_bank_fmax_bytes, size.gemm_stationary_fmax)
    assert found == (128, 512, 2048, 128)
    assert (size.gemm_moving_fmax, size.bn_stats_fmax, size.psum_num_banks) == (512, 512, 8)
    assert size.psum_min_align > 0 and size.sbuf_min_align > 0
    assert size.sbuf_fmax_bytes == 4 * size.sbuf_fmax == 240 * 1024, "trn3 by default"
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    assert size.sbuf_fmax_bytes == 176 * 1024 and size.sbuf_size_bytes == 24 * 2**20
    monkeypatch.setenv("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", "true")
    assert size.psum_num_banks == 8
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    assert size.psum_num_banks == 7


def test_tile_size_of_the_kernel_that_is_staged():
    found = []
    stage(lambda: found.append(nl.tile_size.sbuf_fmax_bytes), target="trn2")
    assert found == [208 * 1024]


def test_deprecated_tile_sizes():
    with pytest.warns(DeprecationWarning, match="psum_bank_fmax"):
        assert nl.tile_size.psum_fmax == 512
    with pytest.warns(DeprecationWarning, match="sbuf_fmax_bytes"):
        assert nl.tile_size.total_available_sbuf_size == nl.tile_size.sbuf_fmax_bytes


def test_program_ids_without_a_grid():
    """Rule 131."""
    found = []
    stage(
        lambda: found.extend((nl.program_id(0), nl.num_programs(), nl.num_programs((0,)), nl.program_ndim()))
    )
    assert found == [0, 1, 1, 0]
    with pytest.raises(errors.ArgumentError, match="one axis"):
        stage(lambda: nl.program_id(axis=1))
    with pytest.raises(errors.OutsideKernelError):
        nl.program_id(0)


@pytest.mark.parametrize("function", [nl.affine_range, nl.sequential_range, nl.static_range, nl.range])
def test_ranges(function):
    """Rule 130."""
    assert list(function(3)) == [0, 1, 2]
    assert list(function(2, 8, 3)) == [2, 5]
    assert list(function(np.int64(2))) == [0, 1]


def test_ranges_refuse_what_is_not_known():
    with pytest.raises(errors.ArgumentError, match=r"nl\.affine_range"):
        nl.affine_range(2.0)
    with pytest.raises(errors.ArgumentError, match="known while staging"):
        stage(lambda: nl.static_range(nl.zeros((1, 1), nl.int32)))


def test_ranges_are_noted_as_deprecated():
    program = stage(lambda: list(nl.affine_range(2)))
    found = [d for d in program.diagnostics if d.code == "deprecated"]
    assert len(found) == 1 and found[0].severity == "note" and "write range" in found[0].message


@pytest.mark.parametrize(
    "name", ["arange", "mgrid", "par_dim", "static_cast", "cast", "finfo", "loop_reduce"]
)
def test_removed_names(name):
    assert not hasattr(nl, name)
    with pytest.raises(errors.RemovedApiError, match=name) as caught:
        getattr(nl, name)
    assert isinstance(caught.value, NotImplementedError) and "use instead" in str(caught.value)


def test_unknown_names():
    with pytest.raises(AttributeError, match="no attribute 'quux'"):
        _ = nl.quux


def test_tokens():
    assert nl.prelu.nki_token == "prelu" and repr(nl.bypass) == "nl.bypass"
    with pytest.raises(errors.ArgumentError, match="operator and not a function"):
        nl.average(1)
    assert nl.bool == nl.bool_ == "bool" and nl.float32 == "float32" and str(nl.bfloat16) == "bfloat16"


def test_program_ids_on_two_cores():
    with Builder("k", get_target("trn2"), grid=2, core=1):
        assert (nl.program_id(0), nl.num_programs(axes=0), nl.program_ndim()) == (1, 2, 1)


def banks(count, a):
    """As many PSUM tiles of a whole bank, all live together."""
    out = nl.ndarray((128, 512), nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(a)
    tiles = [nl.ndarray((128, 512), nl.float32, buffer=nl.psum) for _ in range(count)]
    for each in tiles:
        nisa.tensor_copy(each, tile)
    for each in tiles:
        nisa.tensor_copy(tile, each)
    nl.store(out, tile)
    return out


def test_a_reserved_bank_is_nobodys(monkeypatch):
    """Rule 174."""
    kernel, a = nki.jit(banks), np.ones((128, 512), np.float32)
    before = str(kernel.ir(8, a, target="trn2"))
    monkeypatch.setenv("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", "true")
    with pytest.raises(errors.CapacityError, match="PSUM is full"):
        kernel.ir(8, a, target="trn2")
    text = str(kernel.ir(7, a, target="trn2"))
    assert "psum_num_banks=7" in text and str(parse_program(text)) == text
    assert str(kernel.ir(8, a, target="trn1")).count(" in psum") == 8
    with pytest.raises(errors.CapacityError, match="does not fit psum"):
        nki.simulate(lambda: nl.ndarray((1, 1), nl.float32, nl.psum, address=(0, 7 * 2048)), target="trn2")()
    monkeypatch.delenv("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE")
    assert str(kernel.ir(8, a, target="trn2")) == before
