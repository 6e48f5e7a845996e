"""Rules 94 to 102: DMA."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.conformance.registry import DOCUMENTED, INFERRED, also, rule
from tests.conformance.steps import counted, f32
from tests.isa.single import Out, run, same
from tests.isa.tiles import load, sbuf, store

BOUNDS = "public_cases/test_bounds.py"
COPY = "isa/test_dma_copy.py"
TRANSPOSE = "isa/test_dma_transpose.py"
COMPUTE = "isa/test_dma_compute.py"


def gathered(x, index, fill=0, target="trn2", **options):
    """The rows of `x` that `index` names, in a tile that held `fill`."""

    @nki.jit
    def kernel(x, index):
        rows = sbuf((index.shape[0], x.shape[1]), x.dtype)
        nisa.memset(dst=rows, value=fill)
        width = x.shape[1]
        window = x.ap([[width, index.shape[0]], [1, width]], vector_offset=load(index))
        nisa.dma_copy(dst=rows, src=window, **options)
        return store(rows)

    return nki.simulate(kernel, target=target)(x, index)


def column(*values):
    return np.array(values, np.uint32)[:, None]


@rule(94, DOCUMENTED, "oob_mode.error raises for any dynamic index outside; skip drops that transfer "
      "alone; static ones are errors always.", f"{BOUNDS}::test_pc_11_a_row_past_the_end_is_named",
      f"{BOUNDS}::test_static_addresses_outside_are_refused",
      f"{BOUNDS}::test_a_scatter_out_of_bounds_writes_nothing_else")  # fmt: skip
def test_rule_094_out_of_bounds():
    x = counted(4, 2)
    same(gathered(x, column(3, 4, 0), 9.0, oob_mode=nisa.oob_mode.skip), np.array([x[3], [9, 9], x[0]], f32))
    with pytest.raises(errors.DynamicBoundsError, match="4"):
        gathered(x, column(3, 4, 0))


@rule(95, INFERRED, "Indices are unsigned for the bounds check: 0xFFFFFFFF is huge and never the last row.",
      f"{BOUNDS}::test_the_largest_unsigned_index_is_not_the_last_row",
      f"{BOUNDS}::test_minus_one_is_no_row")  # fmt: skip
def test_rule_095_unsigned():
    x = counted(4, 2)
    same(gathered(x, column(2**32 - 1, 1), 9.0, oob_mode=nisa.oob_mode.skip), np.array([[9, 9], x[1]], f32))


@rule(96, DOCUMENTED, "skip works with packed types and leaves what it drops, transposes of gathered rows "
      "included.")  # fmt: skip
def test_rule_096_skip_of_packed_types():
    import nki.dtypes as dtypes

    x = np.arange(8, dtype=np.uint32).reshape(4, 2).view(dtypes.float8_e4m3fn_x4.numpy)
    found = gathered(x, column(3, 7), 0, target="trn3", oob_mode=nisa.oob_mode.skip)
    assert found.dtype == x.dtype and found[0].tobytes() == x[3].tobytes() and found[1].tobytes() == bytes(8)


@rule(97, DOCUMENTED, "Descriptors: vector_offset allows unknown and swdge; hwdge from trn2; engine goes "
      "with hwdge, sync or scalar.", f"{COPY}::test_rule_97_modes_and_engines",
      f"{TRANSPOSE}::test_rule_97_modes_by_target", open="scalar_offset goes with any mode but none")  # fmt: skip
def test_rule_097_descriptors():
    x = counted(4, 2)
    same(gathered(x, column(1), dge_mode=nisa.dge_mode.swdge), x[1:2])
    for mode in (nisa.dge_mode.hwdge, nisa.dge_mode.none):
        with pytest.raises(errors.NkiValidationError):
            gathered(x, column(1), dge_mode=mode)
    call = {"dst": Out((4, 2)), "src": x, "dge_mode": nisa.dge_mode.hwdge}
    same(run(nisa.dma_copy, target="trn2", engine=nisa.engine.scalar, **call), x)
    with pytest.raises(errors.TargetError, match="trn1"):
        run(nisa.dma_copy, target="trn1", **call)


@rule(98, DOCUMENTED, "dma_transpose: axes (1,0), (2,1,0), (3,1,2,0); dst has the exact shape and rank; "
      "one dtype.", f"{TRANSPOSE}::test_rule_98_axes", f"{TRANSPOSE}::test_rank",
      f"{TRANSPOSE}::test_rule_98_into_hbm")  # fmt: skip
def test_rule_098_transposes():
    x = counted(4, 6)
    same(run(nisa.dma_transpose, dst=Out((6, 4)), src=x), x.T)
    x = counted(3, 4, 5)
    same(run(nisa.dma_transpose, dst=Out((5, 4, 3)), src=x), x.transpose(2, 1, 0))
    with pytest.raises(errors.NkiError):
        run(nisa.dma_transpose, dst=Out((5, 12)), src=x)


@rule(99, DOCUMENTED, "dma_transpose of gathered rows: uint32 indices column by column, rows in steps of "
      "16, 2-byte types, from trn2.")  # fmt: skip
def test_rule_099_gathered_rows_are_transposed():
    x = counted(20, 8, dtype=np.float16)
    order = np.random.default_rng(0).permutation(20)[:16]

    @nki.jit
    def kernel(x, index):
        t = sbuf((8, 16), x.dtype)
        nisa.dma_transpose(dst=t, src=x.ap([[8, 16], [1, 8]], vector_offset=load(index)))
        return store(t)

    found = nki.simulate(kernel, target="trn2")(x, column(*order))
    same(found, x[order].T)
    with pytest.raises(errors.NkiError):
        nki.simulate(kernel, target="trn1")(x, column(*order))
    with pytest.raises(errors.NkiError):
        nki.simulate(kernel, target="trn2")(x.astype(f32), column(*order))


@rule(100, DOCUMENTED, "hwdge transposes 2-byte elements: 16 rows (2-D), or rows times the next-to-last "
      "size a multiple of 16; at most 128.", f"{TRANSPOSE}::test_rule_100_hardware_descriptors")  # fmt: skip
def test_rule_100_hardware_transposes():
    x = counted(16, 8, dtype=np.float16)
    call = {"target": "trn2", "dge_mode": nisa.dge_mode.hwdge}
    same(run(nisa.dma_transpose, dst=Out((8, 16), nl.float16), src=x, **call), x.T)
    for wrong in (x[:15], x.astype(f32)):
        with pytest.raises(errors.NkiValidationError):
            run(nisa.dma_transpose, dst=Out(wrong.shape[::-1], wrong.dtype), src=wrong, **call)


@rule(101, DOCUMENTED, "dma_compute: dst is the sum of up to 16 sources, scales 1.0 or None; indirectly "
      "one source is dst's rows.", f"{COMPUTE}::test_rule_101_sums",
      f"{COMPUTE}::test_rule_101_scales_of_one", f"{COMPUTE}::test_refused",
      "public_cases/test_loops.py::test_pc_43_a_scatter_that_names_a_row_twice",
      open="dst counts only where it is listed among the sources")  # fmt: skip
def test_rule_101_sums():
    x = counted(2, 3)
    found = run(
        lambda dst, a, b: nisa.dma_compute(dst=dst, srcs=[a, b, a], reduce_op=nl.add),
        dst=Out((2, 3)),
        a=x,
        b=x,
    )
    same(found, 3 * x)
    for options in ({"reduce_op": nl.multiply}, {"reduce_op": nl.add, "scales": [2.0]}):
        with pytest.raises(errors.NkiError):
            run(lambda dst, a, o=options: nisa.dma_compute(dst=dst, srcs=[a], **o), dst=Out((2, 3)), a=x)


@rule(102, DOCUMENTED, "priority 0 to 3 exists on trn3 and changes no value.",
      f"{COPY}::test_rule_102_priority_changes_no_value", f"{COPY}::test_rules_97_102_144_refused",
      f"{TRANSPOSE}::test_rule_102_priority")  # fmt: skip
@pytest.mark.parametrize("priority", [0, 3])
def test_rule_102_priority(priority):
    x = counted(2, 3)
    same(run(nisa.dma_copy, target="trn3", dst=Out((2, 3)), src=x, priority=priority), x)
    with pytest.raises(errors.NkiError):
        run(nisa.dma_copy, target="trn3", dst=Out((2, 3)), src=x, priority=4)


@also(101)
def test_rule_101_scatter_and_gather():
    @nki.jit
    def scatter(d, s, index):
        rows = d.ap([[2, 2], [1, 2]], vector_offset=load(index))
        nisa.dma_compute(dst=rows, srcs=[rows, load(s)], reduce_op=nl.add)
        return d

    @nki.jit
    def gather(d, s, index):
        t = load(s)
        nisa.dma_compute(dst=t, srcs=[d.ap([[2, 2], [1, 2]], vector_offset=load(index)), t], reduce_op=nl.add)
        return store(t)

    d, s = counted(4, 2), np.full((2, 2), 10, f32)
    same(nki.simulate(gather, target="trn2")(d, s, column(3, 1)), d[[3, 1]] + s)
    expected = d.copy()
    expected[[3, 1]] += s
    same(nki.simulate(scatter, target="trn2")(d.copy(), s, column(3, 1)), expected)
