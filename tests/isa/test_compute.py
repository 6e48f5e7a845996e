"""The rules that every instruction of a compute engine shares, and the names `nki.isa` exports besides instructions."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki.ir.instruction import REGISTRY
from tests.isa.single import Out, diagnose, f32, run

DOCUMENTED = {
    "affine_select": (
        "dst, pattern, channel_multiplier, on_true_tile, on_false_value, cmp_op=equal, offset=0, name=None"
    ),
    "iota": "dst, pattern, offset=0, channel_multiplier=0, name=None",
    "memset": "dst, value, engine=engine.unknown, name=None",
    "reciprocal": "dst, data, name=None",
    "scalar_tensor_tensor": (
        "dst, data, op0, operand0, op1, operand1, reverse0=False, reverse1=False, name=None"
    ),
    "tensor_copy": "dst, src, engine=engine.unknown, name=None",
    "tensor_reduce": "dst, op, data, axis, negate=False, keepdims=False, name=None",
    "tensor_scalar": (
        "dst, data, op0, operand0, reverse0=False, op1=None, operand1=None, reverse1=False, "
        "engine=engine.unknown, name=None"
    ),
    "tensor_scalar_reduce": (
        "dst, data, op0, operand0, reduce_op, reduce_res=None, reverse0=False, "
        "reduce_cmd=reduce_cmd.reset_reduce, reduce_init=None, reduce_res_negate=False, name=None"
    ),
    "tensor_tensor": "dst, data1, data2, op, engine=engine.unknown, name=None",
    "tensor_tensor_scan": "dst, data0, data1, initial, op0, op1, reverse0=False, reverse1=False, name=None",
}
"""The signatures of release 0.6, without annotations."""


def shown(parameter: inspect.Parameter) -> str:
    default = parameter.default
    if default is inspect.Parameter.empty:
        return parameter.name
    text = f"{type(default).__name__}.{default.name}" if hasattr(default, "value") else str(default)
    return f"{parameter.name}={text}"


@pytest.mark.parametrize("mnemonic", sorted(DOCUMENTED))
def test_documented_signature(mnemonic: str) -> None:
    found = inspect.signature(getattr(nisa, mnemonic))
    assert ", ".join(map(shown, found.parameters.values())) == DOCUMENTED[mnemonic]


@pytest.mark.parametrize("mnemonic", sorted(DOCUMENTED))
def test_every_parameter_is_explained(mnemonic: str) -> None:
    parts = [*REGISTRY[mnemonic].operands, *REGISTRY[mnemonic].attributes]
    assert [part.name for part in parts if not part.doc] == []


def test_more_partitions_than_there_are() -> None:
    """Rule 50."""

    def wide(dst: object) -> None:
        tile = nl.ndarray((256, 4), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=0.0)

    with pytest.raises(errors.PartitionLimitError, match=r"256.*128"):
        run(wide, dst=Out((4, 4), fill=0))


def test_hbm_is_no_operand() -> None:
    """Rule 52."""

    def direct(dst: object) -> None:
        far = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.hbm)
        nisa.tensor_copy(dst=dst, src=far)

    with pytest.raises(errors.MemoryError_, match="sbuf"):
        run(direct, dst=Out((4, 4)))


@pytest.mark.parametrize(
    ("start", "stop", "legal"),
    [(0, 100, True), (64, 128, True), (96, 128, True), (32, 72, False), (1, 2, False)],
)
def test_start_partition(start: int, stop: int, legal: bool) -> None:
    """Rule 51."""

    def part(dst: object) -> None:
        nisa.memset(dst=dst[start:stop], value=1.0)

    found = diagnose(part, dst=Out((128, 2), fill=0))
    assert [d.severity for d in found] == ([] if legal else ["warning"])


def test_long_partitions_are_a_warning() -> None:
    """Rule 182."""
    found = diagnose(nisa.memset, dst=Out((1, 70_000), nl.uint8), value=0)
    assert [d.severity for d in found] == ["warning"] and "65536" in found[0].message


def test_calls_return_handles() -> None:
    seen = []

    def noted(dst: object) -> None:
        first = nisa.memset(dst=dst, value=0.0)
        seen.append(nisa.memset(dst=dst, value=1.0).depends_on(first))

    run(noted, dst=Out((2, 2)))
    assert isinstance(seen[0], nisa.NkiInstruction)


def test_outside_a_kernel() -> None:
    """Rule 170."""
    with pytest.raises(errors.OutsideKernelError, match=r"nisa\.memset"):
        nisa.memset(dst=None, value=0)


def test_unknown_keyword() -> None:
    """Rule 143."""
    with pytest.raises(errors.UnknownKeywordError, match="unexpected keyword argument 'valeu'"):
        run(nisa.memset, dst=Out((2, 2)), valeu=0)


def test_deprecated_names_of_engines() -> None:
    """Rule 93."""
    for engine in ("tensor", "vector", "scalar", "gpsimd", "unknown"):
        assert getattr(nisa, f"{engine}_engine") is nisa.engine[engine]
    with pytest.raises(errors.ArgumentError, match="engine"):
        run(nisa.memset, dst=Out((2, 2)), value=0, engine="vector")


def test_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 173."""
    assert nisa.get_nc_version() is nisa.nc_version.gen4 and nisa.get_nc_sub_version() == 0
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    assert nisa.get_nc_version() is nisa.nc_version.gen2
    seen = []

    @nki.jit
    def kernel(x):
        seen.append(nisa.get_nc_version())
        return nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)

    kernel.check(np.ones((2, 2), f32), target="trn2")
    assert seen == [nisa.nc_version.gen3] and nisa.nc_version.gen3 < nisa.nc_version.gen4
