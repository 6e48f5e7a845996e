"""`nisa.tensor_partition_reduce`: fold a tile over its partitions."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.enums import engine as Engine
from nki.errors import OperandDtypeError, OperandShapeError
from nki.ir.cost import Phase
from nki.ir.instruction import Steps
from nki.ir.operands import SBUF, TEXT, attribute, destination, optional, source
from nki.ir.program import Shape
from nki.ir.verify import Fault, rule
from nki.isa.alu import ALU, AluOp, operator_error, token_name
from nki.isa.apply import bits, fold
from nki.isa.compute import ComputeInstruction
from nki.isa.cores import CORE_PARTITIONS
from nki.isa.costs import stream_cycles, streaming_phase
from nki.isa.export import instruction
from nki.isa.kinds import token
from nki.target import Target


def _average(x: Any, y: Any, out: Any) -> None:
    raise TypeError("an average of two operands is no instruction")


AVERAGE = AluOp(
    "average",
    "arith",
    2,
    _average,
    "the mean, in float32",
    reduce_function=lambda array, axis, out: np.mean(array, axis, out=out, keepdims=out.ndim == array.ndim),
    engines=(Engine.gpsimd,),
)
OPERATORS = {"average": AVERAGE, **{n: ALU[n] for n in ("add", "maximum", "bitwise_or", "bitwise_and")}}


def _operator(value: object) -> AluOp:
    name = value.name if isinstance(value, AluOp) else token_name(value)
    if name not in OPERATORS:
        raise operator_error(value, "an operator that folds partitions", OPERATORS)
    return OPERATORS[name]


@instruction
class tensor_partition_reduce(ComputeInstruction):
    """dst[0, F] = fold of data[:, F] over all partitions with `op`, on the GpSimd engine.

    `op` is add, average, max (or maximum), bitwise_or or bitwise_and. Arithmetic folds are made in float32 and rounded
    once; bit operators fold the bits of integers. The mean of all elements is not taken: every free element is folded
    by itself.
    Sources: nki.isa.tensor_partition_reduce; test_nki_isa_partition_reduce.py; semantics rules 83, 189.
    """

    engines = (Engine.gpsimd,)
    layout = "declared"

    dst = destination("* F", SBUF, doc="the results, in one partition")
    op = attribute(token("add, average, max, bitwise_or or bitwise_and", _operator), doc="what to fold with")
    data = source("P F", SBUF, doc="the tile to fold")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    def compute(self) -> str:
        return "raw" if self.op.kind == "bitvec" else "float32"

    def array_shapes(self) -> dict[str, Shape]:
        return {"data": (self.data.partitions, self.data.free), "dst": (1, self.data.free)}

    @rule("the result lies in one partition (semantics rule 83)")
    def one_partition(self, target: Target) -> Fault | None:
        if self.dst.partitions == 1:
            return None
        return Fault(
            operand=f"dst: {self.dst.describe()}",
            found=f"{self.dst.partitions} partitions",
            allowed="1 partition",
            remedy=f"allocate dst as {(1, *self.data.shape[1:])}, or pass dst[0:1]",
            error=OperandShapeError,
        )

    @rule("bit operators take integer tiles of one width (semantics rule 9)")
    def bit_operators_take_integers(self, target: Target) -> Fault | None:
        if self.op.kind != "bitvec":
            return None
        wrong = self.non_integers()
        if wrong is not None or self.dst.dtype.itemsize == self.data.dtype.itemsize:
            return wrong
        return Fault(
            operand=f"dst: {self.dst.describe()}",
            found=f"{self.data.dtype} to {self.dst.dtype}",
            allowed=f"an integer type of {self.data.dtype.itemsize} bytes",
            remedy="fold into a tile of the same width and cast it with nisa.tensor_copy",
            error=OperandDtypeError,
            text="bit operators change no width: `dst` and `data` differ",
        )

    def semantics(self, a: Any) -> Steps:
        data, dst = (bits(a.data), bits(a.dst)) if self.op.kind == "bitvec" else (a.data, a.dst)
        yield fold(self.op, data, (0,), dst)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        """ESTIMATE: each GpSimd core folds its 16 partitions one after the other; no figure is published."""
        cycles = stream_cycles(target, (self.data,), CORE_PARTITIONS)
        return (streaming_phase(target, self.engine, cycles, (self.dst, self.data)),)
