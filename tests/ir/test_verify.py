"""The checks that follow from an instruction's declaration, and how a call's arguments are bound: each error class."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from nki import errors
from nki.dtypes import bfloat16, float8_e4m3fn_x4, float32, int32
from nki.enums import MemoryRegion, matmul_perf_mode
from nki.enums import engine as Engine
from nki.ir import REGISTRY, Access, Buffer, Instruction, verify
from nki.ir.arguments import bind
from nki.ir.builder import Builder, current, issue
from nki.ir.operands import source
from nki.ir.program import row_major
from nki.target import get_target
from tests.ir.toys import TOYS, Toy

SBUF, PSUM, HBM = MemoryRegion.sbuf, MemoryRegion.psum, MemoryRegion.private_hbm
WIDE = get_target("trn2").pmax + 1


class Tensor:
    """What an instruction takes for a tensor: anything with an `access`."""

    def __init__(self, shape: tuple[int, ...], memory: MemoryRegion = SBUF, dtype: Any = float32) -> None:
        buffer = Buffer("t", shape, dtype, memory)
        self.access = Access(buffer, dtype, 0, shape, row_major(shape))


def call(mnemonic: str, *args: Any, target: str = "trn2", **kwargs: Any) -> Instruction:
    """What calling an instruction inside a kernel does."""
    with Builder("k", get_target(target)):
        return issue(TOYS[mnemonic], args, kwargs)


def refused(error: type[errors.NkiError], mnemonic: str, *args: Any, **kwargs: Any) -> errors.NkiError:
    """The error of a call that must be refused: of this very class, complete, and at this file."""
    with pytest.raises(error) as raised:
        call(mnemonic, *args, **kwargs)
    found = raised.value
    assert type(found) is error
    assert found.message.startswith(mnemonic)
    assert found.allowed is not None
    assert found.remedy
    assert found.span is not None
    assert found.span.file == __file__
    return found


def test_a_legal_call() -> None:
    tile = Tensor((4, 8))
    found: Any = call("toy_scale", tile, tile, 2.0)
    assert (found.factor, found.bias, found.name, found.engine) == (2.0, None, None, Engine.vector)
    assert [operand.name for operand, _ in found.accesses()] == ["dst", "src"]
    assert found.span.file == __file__
    assert current() is None


# declarations


def test_generation() -> None:
    tile = Tensor((4, 8))
    found = refused(errors.TargetError, "toy_shuffle", tile, 1.0, [[1, 8]], target="trn1")
    assert found.message == "toy_shuffle: this instruction does not exist on trn1"
    assert found.allowed == "trn2 and later"


@pytest.mark.parametrize(
    ("mnemonic", "dst", "src", "operand", "help_"),
    [
        ("toy_scale", SBUF, HBM, "src", "nisa.dma_copy"),
        ("toy_move", HBM, PSUM, "src", "nisa.tensor_copy"),
        ("toy_product", SBUF, SBUF, "dst", "buffer=nl.psum"),
        ("toy_move", PSUM, SBUF, "dst", "allocate it with buffer=nl.sbuf"),
        (
            "toy_scale",
            HBM,
            SBUF,
            "dst",
            "buffer=nl.sbuf or buffer=nl.psum, and move it out with nisa.dma_copy",
        ),
    ],
)
def test_memory(mnemonic: str, dst: MemoryRegion, src: MemoryRegion, operand: str, help_: str) -> None:
    tensors = [Tensor((8, 8), dst), *[Tensor((8, 8), src)] * (2 if mnemonic == "toy_product" else 1)]
    found = refused(errors.MemoryError_, mnemonic, *tensors)
    assert f"`{operand}` must live in" in found.message
    assert found.operand == operand
    assert help_ in str(found.remedy)


def test_dtype() -> None:
    found = refused(
        errors.OperandDtypeError, "toy_scale", Tensor((4, 8)), Tensor((4, 8), dtype=float8_e4m3fn_x4)
    )
    assert found.message == "toy_scale: `src` cannot be float8_e4m3fn_x4"
    refused(
        errors.OperandDtypeError,
        "toy_scale",
        Tensor((4, 8)),
        Tensor((4, 8)),
        1.0,
        Tensor((4, 1), dtype=int32),
    )


def test_partitions() -> None:
    tile = Tensor((WIDE, 8))
    found = refused(errors.PartitionLimitError, "toy_scale", tile, tile)
    assert found.message == f"toy_scale: partition dimension {WIDE} of `dst` exceeds maximum {WIDE - 1}"
    assert isinstance(found, AssertionError)


def test_letters_must_agree() -> None:
    found = refused(errors.OperandShapeError, "toy_scale", Tensor((4, 8)), Tensor((4, 9)))
    assert "dimension F (elements per partition) is 8 in `dst` but 9 in `src`" in found.message
    found = refused(errors.OperandShapeError, "toy_move", Tensor((4, 8)), Tensor((4, 9), HBM))
    assert "dimension E (elements) is 32 in `dst` but 36 in `src`" in found.message
    call("toy_move", Tensor((4, 8)), Tensor((32,), HBM))
    call("toy_scale", Tensor((4, 2, 4)), Tensor((4, 8)))


def test_a_column_is_one_element_wide() -> None:
    tile = Tensor((4, 8))
    found = refused(errors.OperandShapeError, "toy_scale", tile, tile, 1.0, Tensor((4, 2)))
    assert "`bias` must have 1 element per partition, it has 2" in found.message
    call("toy_scale", tile, tile, 1.0, Tensor((4, 1)))


def test_limits() -> None:
    most = get_target("trn2").gemm_moving_fmax
    dst, left = Tensor((8, most + 1), PSUM), Tensor((4, 8))
    found = refused(errors.LimitError, "toy_product", dst, left, Tensor((4, most + 1)))
    assert found.message == f"toy_product: dimension N of `dst` is {most + 1}; trn2 allows at most {most}"
    assert found.allowed == f"at most {most} on trn2 (gemm_moving_fmax)"


def test_rules() -> None:
    dst, left, right = Tensor((8, 8), PSUM), Tensor((4, 8), dtype=bfloat16), Tensor((4, 8))
    found = refused(errors.RuleError, "toy_product", dst, left, right)
    assert found.message == "toy_product: stationary and moving must have one dtype"
    assert (found.operand, found.found, found.allowed, found.remedy) == (
        "moving",
        "float32",
        "bfloat16",
        "cast it",
    )


def test_warnings_are_recorded_once_per_place() -> None:
    tile = Tensor((4, 8))
    with Builder("k", get_target("trn2")) as builder:
        for _ in range(3):
            issue(TOYS["toy_scale"], (tile, tile, 0), {})
    (found,) = builder.program.diagnostics
    assert (found.code, found.severity, found.file) == ("toy_scale", "warning", __file__)
    assert len(builder.program.cores[0]) == 3


# engines


def test_the_first_engine_that_can_is_taken() -> None:
    sbuf, psum = Tensor((4, 8)), Tensor((4, 8), PSUM)
    assert call("toy_scale", sbuf, sbuf).engine is Engine.vector
    assert call("toy_scale", sbuf, sbuf, engine=Engine.gpsimd).engine is Engine.gpsimd
    assert call("toy_move", sbuf, sbuf).engine is Engine.dma
    found = refused(errors.EngineError, "toy_scale", psum, sbuf, engine=Engine.gpsimd)
    assert "GpSimd cannot reach PSUM, where `dst` lives" in found.message
    assert found.allowed == "vector, scalar"


def test_engines_that_cannot() -> None:
    tile = Tensor((4, 8))
    found = refused(errors.EngineError, "toy_scale", tile, tile, engine=Engine.tensor)
    assert found.message == "toy_scale: the tensor engine cannot run this instruction"
    found = refused(errors.EngineError, "toy_scale", tile, tile, engine=Engine.scalar, target="trn1")
    assert "the trn1 Scalar engine has no toy_scale" in found.message
    assert found.allowed == "vector, gpsimd"


def test_no_engine_at_all() -> None:
    class toy_nowhere(Toy):
        """Runs on no generation."""

        engines = (Engine.vector, Engine.scalar)
        src = source("P F")

        def engine_fault(self, engine: Engine, target: Any) -> str | None:
            return "too small"

    REGISTRY.pop("toy_nowhere")
    instruction = toy_nowhere({"src": Tensor((4, 8)).access})
    with pytest.raises(
        errors.EngineError, match="no engine can run this: vector: too small; scalar: too small"
    ):
        verify(instruction, get_target("trn2"))
    assert instruction.engine is Engine.unknown


def test_a_changed_machine_is_not_mistaken_for_the_usual_one() -> None:
    usual = get_target("trn2")
    small = dataclasses.replace(usual, pmax=2)
    instruction = TOYS["toy_scale"](
        bind(TOYS["toy_scale"], (), {"dst": Tensor((4, 8)), "src": Tensor((4, 8))})
    )
    verify(instruction, usual)
    with pytest.raises(errors.PartitionLimitError):
        verify(instruction, small)


# arguments


def test_argument_errors() -> None:
    tile = Tensor((4, 8))
    assert (
        "takes 6 arguments but 7 were given"
        in refused(errors.ArgumentError, "toy_scale", *[tile] * 7).message
    )
    assert "misses its argument `src`" in refused(errors.ArgumentError, "toy_scale", tile).message
    assert (
        "multiple values for argument `dst`"
        in refused(errors.ArgumentError, "toy_scale", tile, dst=tile).message
    )
    found = refused(errors.UnknownKeywordError, "toy_scale", tile, tile, facotr=2.0)
    assert found.remedy == "did you mean `factor`?"
    assert refused(errors.UnknownKeywordError, "toy_scale", tile, tile, zzz=1).remedy == "remove `zzz=`"


def test_operand_errors() -> None:
    tile = Tensor((4, 8))
    found = refused(errors.ArgumentError, "toy_scale", tile, np.zeros((4, 8)))
    assert found.message == "toy_scale: `src` must be a tensor, got ndarray"
    assert (
        "`dst` must be a tensor, got NoneType"
        in refused(errors.ArgumentError, "toy_scale", None, tile).message
    )
    found = refused(errors.ArgumentError, "toy_scale", tile, tile, bias="1")
    assert "`bias` must be a tensor or a number, got str" in found.message
    assert "got int" in refused(errors.ArgumentError, "toy_scale", tile, tile, engine=1).message


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("pattern", 3, "a list of [step, count] pairs"),
        ("pattern", [(1, 2, 3)], "a list of [step, count] pairs"),
        ("pattern", [(1, 2.0)], "a list of [step, count] pairs"),
        ("axes", 1.5, "an integer or a tuple of integers"),
        ("count", True, "an integer"),
        ("count", "1", "an integer"),
        ("strict", 1, "True or False"),
        ("limit", "big", "a number"),
        ("title", 3, "a string"),
    ],
)
def test_attribute_errors(name: str, value: object, wanted: str) -> None:
    values: dict[str, Any] = {"pattern": [[1, 8]], name: value}
    found = refused(errors.ArgumentError, "toy_shuffle", Tensor((4, 8)), 1.0, **values)
    assert found.message.startswith(f"toy_shuffle: `{name}`: expected {wanted}")
    assert found.operand == name


def test_enumerations() -> None:
    tensors = Tensor((8, 8), PSUM), Tensor((4, 8)), Tensor((4, 8))
    found = refused(errors.ArgumentError, "toy_product", *tensors, mode="double_row")
    assert "expected a member of nisa.matmul_perf_mode, got str" in found.message
    assert found.allowed == "nisa.matmul_perf_mode.none, nisa.matmul_perf_mode.double_row"
    call("toy_product", *tensors, mode=matmul_perf_mode.double_row)


def test_values_are_converted() -> None:
    values: dict[str, Any] = {
        "axes": 3,
        "count": np.int64(4),
        "strict": np.bool_(True),
        "limit": np.float32(0.5),
    }
    found: Any = call("toy_shuffle", Tensor((4, 8)), np.float32(2), [[1, 2], [3, 4]], **values)
    assert (found.amount, found.pattern, found.axes) == (2.0, ((1, 2), (3, 4)), (3,))
    assert (found.count, found.strict, found.limit) == (4, True, 0.5)
    assert {type(found.amount), type(found.limit)} == {float}


def test_outside_a_kernel() -> None:
    with pytest.raises(errors.OutsideKernelError, match=r"toy_scale was called outside a kernel"):
        issue(TOYS["toy_scale"], (), {})
