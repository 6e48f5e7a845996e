"""Rules 49 to 57, 182 and 183: memories and limits."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.target import get_target
from tests.conformance.registry import DOCUMENTED, also, rule
from tests.conformance.steps import counted, f32, kernel_of, refused
from tests.isa.single import Out, Psum, diagnose, run, same
from tests.isa.tiles import load, psum, sbuf, store

KIB = 1024
INPUT = np.ones((1, 1), f32)


@rule(49, DOCUMENTED, "128 partitions; SBUF 192, 224, 256 KiB a partition on trn1, trn2, trn3; PSUM 8 "
      "banks of 2 KiB.", "nki/test_target.py::test_memory_sizes",
      open="16 KiB of SBUF a partition are reserved, on trn3 an estimate")  # fmt: skip
@pytest.mark.parametrize(("name", "size"), [("trn1", 192), ("trn2", 224), ("trn3", 256)])
def test_rule_049_sizes(name, size):
    target = get_target(name)
    assert (target.pmax, target.psum_num_banks, target.psum_bank_bytes) == (128, 8, 2 * KIB)
    assert target.sbuf_partition_bytes == size * KIB

    def tile_of(free):
        return kernel_of(lambda t: nisa.memset(dst=sbuf((128, free), nl.uint8), value=0) and None)

    most = (size - 16) * KIB - 64
    nki.simulate(tile_of(most), target=name)(INPUT)
    with pytest.raises(errors.CapacityError):
        nki.simulate(tile_of(most + 128), target=name)(INPUT)


@rule(50, DOCUMENTED, "More than 128 partitions are an error that says so.",
      "isa/test_compute.py::test_more_partitions_than_there_are",
      "public_cases/test_limits.py::test_pc_45_more_than_128_partitions")  # fmt: skip
def test_rule_050_partitions():
    error = refused(lambda t: sbuf((129, 1)))
    assert isinstance(error, AssertionError) and "partition dimension 129 exceeds maximum 128" in str(error)


@rule(51, DOCUMENTED, "Compute operands of 65 to 128 partitions start at 0, of 33 to 64 at 0 or 64, "
      "others at a quadrant: a warning.", "isa/test_compute.py::test_start_partition",
      "isa/test_tensor_copy.py::test_odd_start_partition_is_a_warning",
      "isa/test_dma_copy.py::test_start_partitions_are_free",
      "isa/test_nc_stream_shuffle.py::test_rules_51_113_start_partitions",
      open="a warning and no error, as the reference tools are not known to raise")  # fmt: skip
@pytest.mark.parametrize(
    ("rows", "fine"),
    [((32, 64), True), ((96, 128), True), ((64, 128), True), ((5, 10), False), ((32, 96), False)],
)
def test_rule_051_start_partitions(rows, fine):
    def copy(dst, src):
        nisa.tensor_copy(dst=dst[rows[0] : rows[1]], src=src[rows[0] : rows[1]])

    x = counted(128, 2)
    found = diagnose(copy, dst=Out((128, 2), fill=0), src=x)
    assert [d.severity for d in found] == ([] if fine else ["warning"] * len(found)) and bool(found) != fine
    result = run(copy, dst=Out((128, 2), fill=0), src=x)
    same(result[rows[0] : rows[1]], x[rows[0] : rows[1]])


@rule(52, DOCUMENTED, "GpSimd has no PSUM, the Tensor engine reads SBUF and writes PSUM, a DMA ends in "
      "HBM or SBUF.", "isa/test_nc_matmul__limits.py::test_rule_52_memories",
      "isa/test_dma_copy.py::test_rule_52_no_psum", "isa/test_compute.py::test_hbm_is_no_operand",
      "isa/test_iota.py::test_sbuf_only")  # fmt: skip
def test_rule_052_memories():
    x = counted(4, 4)
    with pytest.raises(errors.EngineError, match="PSUM"):
        run(nisa.tensor_copy, dst=Out((4, 4)), src=Psum(x), engine=nisa.engine.gpsimd)
    for call in (
        lambda t: nisa.dma_copy(dst=psum((4, 4)), src=t),
        lambda t: nisa.nc_matmul(dst=sbuf((4, 4)), stationary=t, moving=t),
    ):
        assert isinstance(refused(call, x), errors.MemoryError_)


@rule(53, DOCUMENTED, "A two-input Vector instruction has at most one input in PSUM.",
      "isa/test_tensor_tensor.py::test_only_one_input_in_psum",
      "isa/test_tensor_tensor_scan.py::test_only_one_tile_in_psum",
      "isa/test_scalar_tensor_tensor.py::test_only_one_tile_in_psum",
      "isa/test_tensor_copy_predicated.py::test_rule_53_one_input_in_psum",
      "isa/test_select_reduce.py::test_rule_53_one_input_in_psum")  # fmt: skip
def test_rule_053_one_input_in_psum():
    x = counted(2, 2)
    same(run(nisa.tensor_tensor, dst=Out((2, 2)), data1=Psum(x), data2=x, op=nl.add), 2 * x)
    with pytest.raises(errors.NkiValidationError, match="psum"):
        run(nisa.tensor_tensor, dst=Out((2, 2)), data1=Psum(x), data2=Psum(x), op=nl.add)


@rule(54, DOCUMENTED, "The documented simulator checks neither capacity nor overlap; hardware does, and "
      "so do we.", "passes/test_allocate.py::test_capacity_lists_what_is_live",
      "public_cases/test_memory.py::test_pc_47_more_than_sbuf_holds",
      "public_cases/test_memory.py::test_pc_39_two_live_tiles_at_one_address")  # fmt: skip
def test_rule_054_capacity():
    def body(t):
        t = nl.ndarray((128, 100_000), dtype=nl.float32, buffer=nl.sbuf, name="weights")
        nisa.memset(dst=t, value=0.0)
        return t

    with pytest.raises(errors.CapacityError, match="weights"):
        nki.simulate(kernel_of(body), target="trn2")(INPUT)


@rule(55, DOCUMENTED, "nl.tile_size has the documented sizes; psum_num_banks is 7 when DMA transposes "
      "become PE transposes.", "language/test_environment.py::test_tile_size",
      "language/test_environment.py::test_deprecated_tile_sizes",
      open="sbuf_fmax, sbuf_fmax_bytes, sbuf_size_bytes and the alignments have no published numbers")  # fmt: skip
def test_rule_055_tile_size(monkeypatch):
    size = nl.tile_size
    assert (size.pmax, size.psum_bank_fmax, size.gemm_stationary_fmax, size.gemm_moving_fmax) == (
        128,
        512,
        128,
        512,
    )
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    assert size.psum_num_banks == 8
    monkeypatch.setenv("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", "true")
    assert size.psum_num_banks == 7


@rule(56, DOCUMENTED, "Returned tensors lie in shared_hbm (arguments excepted); nl.hbm is private_hbm.",
      "nki/test_jit__tensors.py::test_forms_of_results")  # fmt: skip
@pytest.mark.parametrize("buffer", [nl.sbuf, nl.hbm, nl.private_hbm, nl.psum])
def test_rule_056_results(buffer):
    @nki.jit
    def kernel(x):
        return nl.ndarray((1, 1), dtype=nl.float32, buffer=buffer)

    assert nl.hbm is nl.private_hbm
    with pytest.raises(errors.ReturnError, match="shared_hbm"):
        nki.simulate(kernel)(INPUT)


@rule(57, DOCUMENTED, "shared_constant is embedded in the program; shared_identity_matrix is shared per "
      "dtype and lies in SBUF.")  # fmt: skip
def test_rule_057_constants():
    values = counted(3, 4)

    @nki.jit
    def kernel(x):
        constant = load(nl.shared_constant(values))
        one, same_one = (
            nl.shared_identity_matrix(4, dtype=nl.float32),
            nl.shared_identity_matrix(4, dtype=nl.float32),
        )
        assert one.buffer is nl.sbuf and one.access.buffer is same_one.access.buffer
        return store(constant), store(one)

    constant, identity = nki.simulate(kernel)(INPUT)
    same(constant, values)
    same(identity, np.eye(4, dtype=f32))


@rule(182, DOCUMENTED, "One instruction covers up to 64K elements a partition in SBUF, 4K in PSUM; max8 "
      "8..16384, bn_stats 512.", "isa/test_compute.py::test_long_partitions_are_a_warning",
      "isa/test_max8.py::test_rules_109_182_limits", "isa/test_bn_stats.py::test_rule_182_limit",
      "isa/test_nc_find_index8.py::test_rule_182_limits_and_dtypes",
      open="the first two, stated for trn1 only, are warnings")  # fmt: skip
def test_rule_182_free_sizes():
    assert diagnose(nisa.memset, dst=Out((1, 4096), psum=True), value=0.0) == []
    for free, legal in ((8, True), (7, False), (16384, True), (16385, False)):
        call = {"dst": Out((1, 8)), "src": np.zeros((1, free), f32)}
        if legal:
            run(nisa.max8, **call)
        else:
            with pytest.raises(errors.NkiValidationError, match=str(16384 if free > 8 else "at least 8")):
                run(nisa.max8, **call)


@rule(183, DOCUMENTED, "shared_constant takes floats and integers of 8 to 32 bits; shared_identity_matrix "
      "is uint8 by default.",
      open="legacy e4m3, bool and packed types are accepted too or refused with a text")  # fmt: skip
@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "bfloat16", "int8", "uint16", "int32", "float8_e5m2"]
)
def test_rule_183_constants(dtype):
    values = counted(2, 3).astype(getattr(nl, dtype).numpy)

    @nki.jit
    def kernel(x):
        t = load(nl.shared_constant(values))
        assert nl.shared_identity_matrix(4).dtype == nl.uint8
        return store(t)

    found = nki.simulate(kernel)(INPUT)
    assert found.dtype == values.dtype and found.tobytes() == values.tobytes()


@also(56)
def test_rule_056_arguments_may_be_returned():
    x = counted(2, 2)
    assert nki.simulate(nki.jit(lambda x: x))(x) is x
