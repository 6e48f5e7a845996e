"""The hardware tables: every number is labelled and sourced; the machines are found by all their names."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, fields, replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nki.enums import dge_mode, engine, nc_version
from nki.errors import TargetError
from nki.target import Fact, Label, Row, Target, get_target

TARGETS = [get_target(name) for name in ("trn1", "trn2", "trn3")]
ROWS = {row.name: row for row in Target.rows()}
CLOCKED = [engine.tensor, engine.vector, engine.scalar, engine.gpsimd, engine.sync]
UNITS = ("_ps", "_cycles", "_bytes", "_mhz", "_percent", "_per_us", "_factor")


@pytest.mark.parametrize("row", Target.rows(), ids=lambda row: row.name)
def test_every_number_says_how_it_is_known_and_where_it_is_written(row: Row) -> None:
    assert row.doc.strip()
    assert row.source.strip()
    assert len(row.values) == len(row.labels) == len(TARGETS)
    assert all(isinstance(label, Label) for label in row.labels)
    for target, value in zip(TARGETS, row.values):
        assert target.fact(row.name) == Fact(value, target.fact(row.name).label, row.source, row.doc)
        assert getattr(target, row.name) is value


@pytest.mark.parametrize("row", Target.rows(), ids=lambda row: row.name)
def test_an_estimate_says_why(row: Row) -> None:
    if Label.ESTIMATE in row.labels:
        assert len(row.source) > len("No figure")


def test_no_attribute_escapes_the_tables() -> None:
    own = {"name", "version", "_clocks_mhz"}
    assert {field.name for field in fields(Target)} == set(ROWS) | own


def test_numbers_are_integers_and_not_negative() -> None:
    for row in Target.rows():
        for value in row.values:
            assert isinstance(value, dge_mode) or (isinstance(value, int) and value >= 0), row.name


def test_times_and_rates_of_the_three_machines_are_of_one_order() -> None:
    for row in Target.rows():
        if row.name.endswith(UNITS) and min(row.values) > 0:
            assert max(row.values) < 10 * min(row.values), row.name


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("trn1", "trn1"),
        ("inf2", "trn1"),
        ("gen2", "trn1"),
        (nc_version.gen2, "trn1"),
        ("trn2", "trn2"),
        ("gen3", "trn2"),
        (nc_version.gen3, "trn2"),
        ("trn3", "trn3"),
        ("gen4", "trn3"),
        (nc_version.gen4, "trn3"),
        ("TRN2", "trn2"),
        (" Gen3 ", "trn2"),
    ],
)
def test_aliases(alias: str | nc_version, name: str) -> None:
    target = get_target(alias)
    assert target.name == name
    assert target is get_target(name)
    assert get_target(target) is target


def test_the_environment_names_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEURON_PLATFORM_TARGET_OVERRIDE", raising=False)
    assert get_target().name == "trn3"
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "inf2")
    assert get_target().name == "trn1"
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn9")
    with pytest.raises(TargetError, match="NEURON_PLATFORM_TARGET_OVERRIDE 'trn9'"):
        get_target()


@pytest.mark.parametrize("name", ["", "trn4", "gen5", "neuron", 2])
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(TargetError) as caught:
        get_target(name)
    assert caught.value.found == name
    assert "trn2" in str(caught.value.allowed)
    assert caught.value.remedy


def test_cycles_become_exact_picoseconds() -> None:
    trn1, trn2, trn3 = TARGETS
    assert trn1.cycles_ps(engine.tensor, 64) == 22_857
    assert trn1.cycles_ps(engine.tensor, 14) == 5_000
    assert trn2.cycles_ps(engine.vector, 96) == 100_000
    assert trn2.cycles_ps(engine.vector, 512, divisor=4) == 133_333
    assert trn3.cycles_ps(engine.vector, 3) == 2_500
    assert trn2.cycles_ps(engine.tensor, 0) == 0


@given(
    target=st.sampled_from(TARGETS),
    unit=st.sampled_from(CLOCKED),
    cycles=st.integers(0, 10**15),
    divisor=st.sampled_from([1, 2, 3, 4]),
)
def test_rounding_happens_once(target: Target, unit: engine, cycles: int, divisor: int) -> None:
    exact = Fraction(cycles * 10**6, target.clock_mhz(unit) * divisor)
    found = target.cycles_ps(unit, cycles, divisor)
    assert isinstance(found, int)
    assert abs(found - exact) <= Fraction(1, 2)


def test_dma_bytes_become_exact_picoseconds() -> None:
    trn1, trn2, trn3 = TARGETS
    assert trn1.dma_bytes_ps(17) == 1_000
    assert trn2.dma_bytes_ps(32 * 1024) == 1_424_696
    assert trn3.dma_bytes_ps(33, percent=50) == 2_000


@pytest.mark.parametrize("target", TARGETS, ids=repr)
def test_documented_tile_sizes(target: Target) -> None:
    assert target.pmax == 128
    assert target.psum_bank_fmax == 512
    assert target.psum_bank_fmax_bytes == target.psum_bank_bytes == 2048
    assert target.psum_num_banks == 8
    assert target.gemm_stationary_fmax == 128
    assert target.gemm_moving_fmax == 512
    assert target.bn_stats_fmax == 512


def test_memory_sizes() -> None:
    mib = 2**20
    assert [target.sbuf_size_bytes // mib for target in TARGETS] == [24, 28, 32]
    assert [target.sbuf_partition_bytes // 1024 for target in TARGETS] == [192, 224, 256]
    assert [target.sbuf_fmax_bytes // 1024 for target in TARGETS] == [176, 208, 240]
    for target in TARGETS:
        assert target.sbuf_size_bytes == target.pmax * target.sbuf_partition_bytes
        assert target.sbuf_fmax_bytes == target.sbuf_partition_bytes - target.sbuf_reserved_bytes
        assert target.sbuf_fmax * 4 == target.sbuf_fmax_bytes
        assert target.psum_partition_bytes == target.psum_num_banks * target.psum_bank_bytes
        assert target.psum_elements_max * 4 == target.psum_partition_bytes
        assert target.hbm_core_bytes_per_us * target.cores_per_chip == target.hbm_chip_bytes_per_us
        assert target.dma_engines * target.dma_engine_partitions == target.pmax
        assert target.gpsimd_cores * target.gpsimd_core_partitions == target.pmax
    assert get_target("trn3").fact("sbuf_fmax_bytes").label is Label.ESTIMATE


def test_moving_limit_follows_the_output_dtype() -> None:
    assert [target.matmul_moving_fmax("float32") for target in TARGETS] == [512, 512, 4096]
    assert [target.matmul_moving_fmax("bfloat16") for target in TARGETS] == [512, 512, 8192]


@pytest.mark.parametrize(
    ("count", "starts"),
    [
        (128, (0,)),
        (65, (0,)),
        (64, (0, 64)),
        (33, (0, 64)),
        (32, (0, 32, 64, 96)),
        (1, (0, 32, 64, 96)),
    ],
)
def test_start_partitions(count: int, starts: tuple[int, ...]) -> None:
    assert get_target("trn2").start_partitions(count) == starts


def test_default_descriptors() -> None:
    trn1, trn2, trn3 = TARGETS
    assert trn1.default_dge_static is dge_mode.none
    assert trn1.default_dge_cast is dge_mode.none
    for target in (trn2, trn3):
        assert target.default_dge_static is dge_mode.swdge
        assert target.default_dge_cast is dge_mode.swdge
    for target in TARGETS:
        assert target.default_dge_dynamic is dge_mode.swdge
        assert target.default_dge_indirect is dge_mode.swdge


def test_published_peak_rates_follow_from_the_clock() -> None:
    published_tflops = [92, 79, 79]
    for target, tflops in zip(TARGETS, published_tflops):
        assert 2 * target.tensor_macs_per_cycle * target.tensor_clock_mhz / 1e6 == pytest.approx(
            tflops, rel=0.01
        )


def test_a_target_is_a_constant() -> None:
    target = get_target("trn2")
    with pytest.raises(FrozenInstanceError):
        target.pmax = 64  # type: ignore[misc]
    assert len({*TARGETS, *TARGETS}) == len(TARGETS)
    assert pickle.loads(pickle.dumps(target)) == target
    assert repr(target) == "Target(trn2)"


def test_a_changed_machine_admits_it() -> None:
    target = get_target("trn2")
    faster = replace(target, tensor_clock_mhz=4_800)
    assert faster != target
    assert faster.cycles_ps(engine.tensor, 48) == 10_000
    assert faster.fact("tensor_clock_mhz").label is Label.ESTIMATE
    assert "2400" in faster.fact("tensor_clock_mhz").source
    assert faster.fact("pmax") == target.fact("pmax")
    assert set(target.facts()) == set(ROWS)


def test_unknown_facts_are_key_errors() -> None:
    with pytest.raises(KeyError):
        get_target("trn1").fact("pmin")
