"""Cycles of the Tensor engine: LoadStationary and MultiplyMoving, the two steps of every matmul and transpose.

Loading the next weights runs behind the current multiplication, so it is a background phase. The sources of the
numbers stand in `nki/target_timing.py`.
"""

from __future__ import annotations

from nki.ir.cost import Phase
from nki.ir.program import Access
from nki.isa.mx import LANES
from nki.target import Target

_FULL_WIDTH = 4  # bytes of float32: loaded column by column and multiplied in several passes


def passes_of(target: Target, wide: bool, *, transpose: bool = False, onezero: bool = False) -> int:
    """How often the moving tile streams through the array; one pass unless an operand is float32 (`wide`)."""
    if not wide:
        return 1
    if transpose:
        return target.tensor_fp32_transpose_passes
    return target.tensor_fp32_onezero_passes if onezero else target.tensor_fp32_passes


def matmul_phases(
    target: Target,
    stationary: Access,
    columns: int,
    rows: int,
    *,
    passes: int = 1,
    moving: Access | None = None,
    transpose: bool = False,
    weights: str = "stationary",
) -> tuple[Phase, ...]:
    """Load `columns` of stationary, stream `rows` of moving; pairs of both for several passes. `weights` is the name of
    the operand that is loaded.

    A float32 product takes pairs of two passes each. A transpose may overlap its neighbours where the array can.
    """
    load = _load_cycles(target, stationary, columns)
    pairs = max(1, passes * target.tensor_fp32_instructions // target.tensor_fp32_passes)
    stream = max(rows, target.tensor_init_cycles) * passes // pairs
    if moving is not None and _is_strided(target, moving):
        stream *= target.access_strided_factor
    behind = transpose and target.tensor_background_transpose
    pair = (
        Phase(load, target.tensor_load_latency_cycles, "load_stationary", background=True, needs=(weights,)),
        Phase(
            stream,
            target.tensor_fill_cycles,
            "transpose" if transpose else "multiply_moving",
            background=behind,
            throttled=_is_throttled(target, stationary.partitions * columns),
            macs=stationary.size * (LANES if stationary.dtype.kind == "packed" else 1) * rows // pairs,
            moves=transpose,
        ),
    )
    return pair * pairs


def _is_throttled(target: Target, cells: int) -> bool:
    """Whether a product keeps so few cells of the array busy that the engine never counts as half utilised: then the
    limit it starts with stays. Utilisation is counted in operations there, of which full means all cells."""
    return cells * 100 <= target.tensor_rearm_percent * target.tensor_macs_per_cycle


def _load_cycles(target: Target, stationary: Access, columns: int) -> int:
    if stationary.dtype.itemsize >= _FULL_WIDTH and stationary.dtype.kind != "packed":
        return columns * target.tensor_fp32_load_cycles
    return -(-columns // target.tensor_fast_load_factor)


def _is_strided(target: Target, access: Access) -> bool:
    """Whether the innermost step is too wide for the full rate of the SBUF port."""
    inner = next((s for n, s in zip(reversed(access.shape[1:]), reversed(access.strides[1:])) if n > 1), 0)
    return abs(inner) * access.dtype.itemsize > target.access_stride_bytes
