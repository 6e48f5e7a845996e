"""What `nisa.nc_matmul` accepts: shapes, dtypes, modes and tiling. Its meaning and cost are in `nc_matmul.py`."""

from __future__ import annotations

from typing import Any

from nki import dtypes, errors
from nki.dtypes import DType
from nki.enums import matmul_perf_mode as PerfMode
from nki.ir.verify import Fault, rule
from nki.isa.indirection import is_indirect
from nki.isa.products import Product
from nki.target import Target

FP8 = frozenset({dtypes.float8_e4m3, dtypes.float8_e4m3fn, dtypes.float8_e5m2})
WIDE = frozenset({dtypes.float32, dtypes.tfloat32})
MATMUL_INPUTS = FP8 | WIDE | {dtypes.bfloat16, dtypes.float16}


class MatmulRules(Product, abstract=True):
    """The rules of a product dst[M, N] = stationary[K, M].T @ moving[K, N]."""

    is_transpose: Any
    perf_mode: Any

    @property
    def is_double_row(self) -> bool:
        """Whether the contraction is over the partitions and a first free dimension of 2."""
        return self.perf_mode is PerfMode.double_row

    def product_shape(self) -> tuple[int, int]:
        """M and N."""
        rows = 2 if self.is_double_row else 1
        return self.stationary.free // rows, self.moving.free // rows

    @rule(
        "tensor indirection takes 16-bit and fp8 floats, and no `moving` of a transpose (semantics rules 43, 66)"
    )
    def offsets_are_legal(self, target: Target) -> Fault | None:
        for operand, access in self.accesses():
            if not is_indirect(access) or operand.is_output:
                continue
            name, found = f"{operand.name}: {access.describe()}", "a view made by .indirect()"
            if access.dtype in WIDE:
                return Fault(
                    name, found, "float16, bfloat16 and fp8", "convert the tile first with nisa.tensor_copy"
                )
            if operand.name == "moving" and self.is_transpose:
                remedy = "gather into a tile first: nisa.tensor_copy(dst=tile, src=view)"
                return Fault(name, found, "a regular view with is_transpose=True", remedy)
        return None

    @rule("double_row exists from trn2 on")
    def double_row_exists(self, target: Target) -> Fault | None:
        if not self.is_double_row or target.fp8_double_row:
            return None
        return Fault(
            "perf_mode",
            found=f"double_row on {target.name}",
            allowed="none; double_row on trn2 and later",
            remedy="leave `perf_mode` out, or run with target='trn2'",
            error=errors.TargetError,
        )

    @rule("double_row takes fp8 operands of shape [K, 2, ...]")
    def double_row_operands(self, target: Target) -> Fault | None:
        for name in ("stationary", "moving") if self.is_double_row else ():
            access = getattr(self, name)
            if access.dtype not in FP8:
                return Fault(
                    f"{name}: {access.describe()}",
                    found=str(access.dtype),
                    allowed=_names(_fp8(target)),
                    remedy="quantise both operands to fp8, or leave `perf_mode` out",
                    error=errors.OperandDtypeError,
                )
            if len(access.shape) < 3 or access.shape[1] != 2:
                return Fault(
                    f"{name}: {access.describe()}",
                    found=f"shape {list(access.shape)}",
                    allowed="a first free dimension of 2: the contraction is split over partitions and that dimension",
                    remedy=f"reshape `{name}` to [K, 2, ...]",
                    error=errors.OperandShapeError,
                )
        return None

    @rule("double_row cannot be combined with transpose mode or column tiling")
    def double_row_alone(self, target: Target) -> Fault | None:
        if not self.is_double_row:
            return None
        columns = self.tile_size and self.tile_size[-1] != target.gemm_stationary_fmax
        if not self.is_transpose and not columns:
            return None
        return Fault(
            "perf_mode",
            found="double_row with "
            + ("is_transpose=True" if self.is_transpose else f"tile_size={self.tile_size}"),
            allowed=f"double_row with is_transpose=False and all {target.gemm_stationary_fmax} columns",
            remedy="leave `perf_mode` out, or the other mode",
        )

    @rule("the two e4m3 types cannot meet in one matmul")
    def one_e4m3(self, target: Target) -> Fault | None:
        if {self.stationary.dtype, self.moving.dtype} != {dtypes.float8_e4m3, dtypes.float8_e4m3fn}:
            return None
        return self._pair_fault(
            "one flavour of e4m3 on both sides", "convert one operand to the other's dtype"
        )

    @rule("float8_e4m3fn operands exist from trn3 on")
    def e4m3fn_exists(self, target: Target) -> Fault | None:
        for name in ("stationary", "moving"):
            if getattr(self, name).dtype is dtypes.float8_e4m3fn and not target.mx_matmul:
                return Fault(
                    f"{name}: {getattr(self, name).describe()}",
                    found=f"float8_e4m3fn on {target.name}",
                    allowed=f"{_names(MATMUL_INPUTS - {dtypes.float8_e4m3fn})} on {target.name}",
                    remedy="use float8_e4m3, or run with target='trn3'",
                    error=errors.OperandDtypeError,
                )
        return None

    @rule("a float32 or tfloat32 operand needs a float32 or tfloat32 partner")
    def wide_in_pairs(self, target: Target) -> Fault | None:
        if (self.stationary.dtype in WIDE) == (self.moving.dtype in WIDE):
            return None
        return self._pair_fault(
            "both of them float32/tfloat32, or neither", "copy one operand to the other's dtype"
        )

    def _pair_fault(self, allowed: str, remedy: str) -> Fault:
        return Fault(
            "stationary, moving",
            found=f"stationary {self.stationary.dtype}, moving {self.moving.dtype}",
            allowed=allowed,
            remedy=f"{remedy} (nisa.tensor_copy casts)",
            error=errors.OperandDtypeError,
        )

    @rule("`dst` is float32")
    def accumulator_dtype(self, target: Target) -> Fault | None:
        allowed = {dtypes.float32}
        if target.psum_bfloat16_accumulate:
            allowed.add(dtypes.bfloat16)
        if self.is_transpose and target.exact_pe_transpose:
            allowed.add(self.stationary.dtype)
        if self.dst.dtype in allowed:
            return None
        return Fault(
            f"dst: {self.dst.describe()}",
            found=f"{self.dst.dtype} on {target.name}",
            allowed=f"{_names(allowed)} here; bfloat16 on trn3; with is_transpose=True from trn2 on the input's type",
            remedy="allocate `dst` in float32 and cast while copying it to SBUF",
            error=errors.OperandDtypeError,
            text=f"`dst` cannot be {self.dst.dtype}: products are accumulated in float32",
        )

    # Rules of all products, at their place behind those of the modes.
    product_fits = Product.product_fits
    free_size_is_legal = Product.free_size_is_legal

    @rule("on trn1 and trn2 the product of one instruction lies in one PSUM bank")
    def one_bank(self, target: Target) -> Fault | None:
        if target.matmul_moving_fmax_float32 > target.psum_bank_fmax:
            return None
        dst = self.dst
        first = dst.offset % dst.row
        last = first + sum((n - 1) * step for n, step in zip(dst.shape[1:], dst.strides[1:]))
        banks = [at * dst.dtype.itemsize // target.psum_bank_bytes for at in (first, last)]
        if banks[0] == banks[1]:
            return None
        return Fault(
            f"dst: {dst.describe()}",
            found=f"elements {first} to {last} of a partition, in banks {banks[0]} to {banks[1]} of the tensor",
            allowed=f"one bank of {target.psum_bank_bytes} bytes on {target.name}",
            remedy="write each bank with an instruction of its own",
        )

    tiling_is_complete = Product.tiling_is_complete
    tiling_is_legal = Product.tiling_is_legal


def _fp8(target: Target) -> frozenset[DType]:
    return FP8 if target.mx_matmul else FP8 - {dtypes.float8_e4m3fn}


def _names(types: frozenset[DType] | set[DType]) -> str:
    return ", ".join(sorted(types))
