"""`nisa.nc_matmul`: a matrix product on the Tensor engine, SBUF to PSUM. Its legality is in `matmul_rules.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki import dtypes, errors
from nki.enums import matmul_perf_mode as PerfMode
from nki.ir.builder import Builder
from nki.ir.cost import Phase
from nki.ir.instruction import Steps
from nki.ir.operands import (
    BOOLEAN,
    INTEGERS_LIST,
    PSUM,
    SBUF,
    TEXT,
    Operand,
    attribute,
    destination,
    one_of,
    optional,
    source,
)
from nki.ir.program import Access, Shape
from nki.isa.apply import bits
from nki.isa.costs_tensor import matmul_phases, passes_of
from nki.isa.export import instruction
from nki.isa.matmul_rules import MATMUL_INPUTS, MatmulRules
from nki.isa.products import Array
from nki.target import Target


@instruction
class nc_matmul(MatmulRules):
    """dst[M, N] (+)= stationary[K, M].T @ moving[K, N], products and sums in float32. Free dimensions are flattened.

    `accumulate`: False overwrites, True adds to what `dst` holds, None decides element by element: the first product
    written to an element since it was allocated, or since another engine wrote it, overwrites, later ones add.
    `perf_mode=double_row` (trn2, fp8) contracts operands of shape [K, 2, ...] over both K and 2. `is_transpose` with an
    identity as `moving` moves bits exactly from trn2 on, and may then write the input's own 16-bit type. `tile_size`
    and `tile_position` place the product on a part of the array; they and the onezero hints change no value.

    Example: nisa.nc_matmul(dst=psum[3, 5], stationary=a[2, 3], moving=b[2, 5])  # a.T @ b
    Sources: nki.isa.nc_matmul; trainium_inferentia2_arch.rst, trainium2_arch.rst; semantics rules 7, 23, 58-66, 184,
    185.
    """

    dst = destination("* *", PSUM, MATMUL_INPUTS, reads=True, indirect=True, doc="the product [M, N]")
    stationary = source(
        "K M", SBUF, MATMUL_INPUTS, indirect=True, doc="the operand held in the array, [K, M]"
    )
    moving = source("K N", SBUF, MATMUL_INPUTS, indirect=True, doc="the operand streamed through it, [K, N]")
    is_stationary_onezero = attribute(
        BOOLEAN, False, doc="stationary holds ones and zeros only (float32 is faster)"
    )
    is_moving_onezero = attribute(BOOLEAN, False, doc="moving holds ones and zeros only (float32 is faster)")
    is_transpose = attribute(BOOLEAN, False, doc="transpose mode: moving is an identity")
    accumulate = attribute(
        optional(BOOLEAN), None, doc="add to dst, overwrite it, or decide by what was written"
    )
    tile_position = attribute(optional(INTEGERS_LIST), (), doc="first row and column of the array to use")
    tile_size = attribute(optional(INTEGERS_LIST), (), doc="rows and columns of the array to use")
    perf_mode = attribute(one_of(PerfMode, "nisa.matmul_perf_mode"), PerfMode.none, doc="fp8 double rate")
    name = attribute(optional(TEXT), None, doc="a name for schedules and profiles")

    exact: bool = False
    """Whether bits are moved instead of multiplied, if `moving` turns out to be an identity."""

    def extents(self, operand: Operand, access: Access) -> Shape:
        if self.is_double_row and operand.name != "dst":
            return (access.partitions, access.free // 2)
        return super().extents(operand, access)

    def array_shapes(self) -> dict[str, Shape]:
        depth = self.stationary.partitions * (2 if self.is_double_row else 1)
        rows, columns = self.product_shape()
        return {"stationary": (depth, rows), "moving": (depth, columns), "dst": (rows, columns)}

    def compute_of(self, operand: Operand) -> str:
        exact = self.exact and self.dst.dtype is self.stationary.dtype and operand.name != "moving"
        return "raw" if exact else "float32"

    def resolve(self, builder: Builder) -> None:
        super().resolve(builder)
        square = self.moving.partitions == self.moving.free
        exact = self.is_transpose and builder.target.exact_pe_transpose and square
        if exact and self.deferred:
            raise _undecided_transpose(self)
        self.exact = exact and self.accumulate is False

    def semantics(self, a: Any) -> Steps:
        if self.exact:
            yield (
                transpose_or_multiply,
                (a.stationary, a.moving, a.dst, np.eye(self.moving.free, dtype=np.float32)),
            )
            return
        yield from self.multiply(a, a.stationary, a.moving)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        wide = (self.stationary.dtype, self.moving.dtype)
        hinted = (self.is_stationary_onezero, self.is_moving_onezero)
        onezero = any(hint and dtype is dtypes.float32 for hint, dtype in zip(hinted, wide))
        passes = passes_of(target, dtypes.float32 in wide, transpose=self.is_transpose, onezero=onezero)
        rows, columns = self.product_shape()
        return matmul_phases(
            target,
            self.stationary,
            rows,
            columns,
            passes=passes,
            moving=self.moving,
            transpose=self.is_transpose,
        )


def _undecided_transpose(call: MatmulRules) -> errors.NkiError:
    return errors.RuleError(
        "nc_matmul: whether this transpose overwrites or adds depends on the pass of a loop on the device",
        operand=f"dst: {call.dst.describe()}",
        found="accumulate=None with a `dst` from outside of the loop",
        allowed="accumulate=False, which moves bits exactly, or accumulate=True",
        remedy="pass accumulate=False, or allocate `dst` in the body of the loop",
    )


def transpose_or_multiply(stationary: Array, moving: Array, dst: Array, identity: Array) -> None:
    """Transpose mode: move bits if `moving` is an identity, multiply if it is something else."""
    if np.array_equal(moving, identity):
        np.copyto(bits(dst), bits(stationary).T)
    else:
        dst[...] = stationary.astype(np.float32).T @ moving
