"""What the instructions of the Vector, Scalar and GpSimd engines cost: the pieces that several of them share.

Cycles are those of the instruction's own engine. `N` is the number of elements per partition: the engines work on all
partitions at once, so their number never matters. The figures stand in `nki/target_timing.py` with their sources; how
many cycles an element takes stands with each instruction. The Tensor engine and the DMA have costs of their own.
"""

from __future__ import annotations

from collections.abc import Iterable

from nki import dtypes
from nki.dtypes import DType
from nki.enums import MemoryRegion
from nki.enums import engine as Engine
from nki.ir.cost import Phase
from nki.ir.instruction import Instruction
from nki.ir.program import Access
from nki.target import Target
from nki.target_facts import US

SBUF_PORT = "sbuf_shared_port"
"""The SBUF port of GpSimd, which the Vector engine needs too: always on trn1, in its fast modes later."""

PSUM_PORT = "psum_port"
"""The PSUM port which the Vector and the Scalar engine share on trn1."""

GPSIMD_FUNCTION_CYCLES = 4
"""Cycles an element of rsqrt takes on GpSimd: a quarter of the rate of the Scalar engine (nki.api.shared.rst)."""

_HALF_FLOATS = (dtypes.bfloat16, dtypes.float16)


def elementwise_phases(
    instruction: Instruction,
    target: Target,
    dst: Access,
    inputs: tuple[Access, ...],
    *,
    modes: bool = True,
    weight: int = 1,
    table: str | None = None,
) -> tuple[Phase, ...]:
    """One pass over `inputs` (the operands of full size, columns left out) that writes `dst`.

    weight: cycles an element takes.  modes: whether the fast modes of tensor_copy and tensor_scalar apply.
    table: the activation table the pass needs.
    """
    engine = instruction.engine
    cycles = stream_cycles(target, (dst, *inputs), weight)
    speed = copy_speed(target, engine, dst, inputs) if modes else 1
    return (streaming_phase(target, engine, cycles, (dst, *inputs), speed=speed, table=table),)


def stream_cycles(target: Target, accesses: Iterable[Access], weight: int = 1) -> int:
    """Cycles in which one element per cycle passes: the largest free size, doubled by a wide innermost stride."""
    streams = tuple(accesses)
    most = max(access.free for access in streams)
    slow = any(_innermost_stride_bytes(access) > target.access_stride_bytes for access in streams)
    return most * weight * (target.access_strided_factor if slow else 1)


def streaming_phase(
    target: Target,
    engine: Engine,
    cycles: int,
    accesses: Iterable[Access],
    *,
    speed: int = 1,
    kind: str = "compute",
    table: str | None = None,
) -> Phase:
    """A phase that streams for `cycles / speed` cycles, at least the engine's minimum, with its latency and ports.

    accesses: the output first.

    An address that a register moves takes its own minimum, whatever the size.
    """
    streaming = -(-cycles // speed)
    accesses = tuple(accesses)
    held = streaming
    if engine is Engine.vector and any(access.memory is MemoryRegion.psum for access in accesses[1:]):
        held += target.vector_psum_cycles
    interval = max(held, least_interval(target, engine))
    if any(access.dynamic is not None and access.dynamic.kind == "scalar" for access in accesses):
        interval = max(interval, target.dynamic_address_min_cycles)
    if engine is Engine.gpsimd:
        interval = max(target.gpsimd_startup_cycles + cycles, interval)
    ports = shared_ports(target, engine, accesses, fast=speed > 1)
    latency = max(streaming + latency_cycles(target, engine) - interval, 0)
    return Phase(interval, latency, kind, table, ports=ports)


def least_interval(target: Target, engine: Engine) -> int:
    """Smallest number of cycles between the starts of two instructions of one engine."""
    if engine is Engine.vector:
        return target.vector_min_cycles
    return target.scalar_min_cycles if engine is Engine.scalar else target.gpsimd_min_cycles


def latency_cycles(target: Target, engine: Engine) -> int:
    """Cycles from the last element streamed in to the result. On GpSimd the start-up, part of the interval, is all."""
    if engine is Engine.gpsimd:
        return 0
    latency = target.vector_latency_ps if engine is Engine.vector else target.scalar_latency_ps
    return (2 * latency * target.clock_mhz(engine) + US) // (2 * US)


def sequencer_phase(target: Target, engine: Engine, time_ps: int, kind: str) -> Phase:
    """A step of an engine's sequencer that takes a known time."""
    return Phase(-(-time_ps * target.clock_mhz(engine) // US), kind=kind)


def accumulator_phase(target: Target, engine: Engine) -> Phase:
    """Reading the accumulator registers out after a pass that fed them."""
    if engine is Engine.scalar:
        return Phase(target.scalar_accumulator_cycles, 0, "read_accumulator")
    return Phase(target.vector_min_cycles, 0, "read_accumulator")


def shared_ports(
    target: Target, engine: Engine, accesses: Iterable[Access], *, fast: bool
) -> tuple[str, ...]:
    """The ports that a pass holds and that another engine may be waiting for."""
    memories = {access.memory for access in accesses}
    ports = []
    if MemoryRegion.sbuf in memories and _holds_sbuf_port(target, engine, fast):
        ports.append(SBUF_PORT)
    if MemoryRegion.psum in memories and target.vector_scalar_psum_exclusive and engine is not Engine.gpsimd:
        ports.append(PSUM_PORT)
    return tuple(ports)


def _holds_sbuf_port(target: Target, engine: Engine, fast: bool) -> bool:
    if engine is Engine.gpsimd:
        return True
    if engine is not Engine.vector:
        return False
    return target.vector_gpsimd_exclusive or (fast and target.vector_fast_takes_gpsimd_port)


# ---- fast modes -------------------------------------------------------------------------------------------------


def copy_speed(target: Target, engine: Engine, dst: Access, inputs: tuple[Access, ...]) -> int:
    """How much faster than an element per cycle a one-input pass runs (tensor_copy, tensor_scalar)."""
    sides = (dst, *inputs)
    half = all(is_half_width(target, access.dtype) for access in sides)
    if engine is Engine.scalar:
        return target.scalar_copy_factor if half else 1
    if engine is not Engine.vector:
        return 1
    in_psum = sum(access.memory is MemoryRegion.psum for access in sides)
    contiguous = all(is_inner_contiguous(access) for access in sides)
    if half:
        if in_psum == 0:
            return target.vector_copy_contiguous_factor if contiguous else target.vector_copy_factor
        return target.vector_copy_factor if in_psum == 1 and contiguous else 1
    return target.vector_fp32_copy_factor if in_psum == 0 and contiguous else 1


def pair_phases(
    instruction: Instruction,
    target: Target,
    dst: Access,
    inputs: tuple[Access, Access],
    *,
    single: bool = False,
    modes: bool = True,
) -> tuple[Phase, ...]:
    """One pass over two inputs: one cycle an element if they come from both memories, else two.

    single: from SBUF it takes one cycle, too (what trn1 does for some operators on contiguous bfloat16).
    modes: the fast mode of tensor_tensor halves what trn1 takes.
    """
    sides = (dst, *inputs)
    in_psum = sum(access.memory is MemoryRegion.psum for access in inputs)
    weight = 1 if in_psum == 1 or (single and in_psum == 0) else 2
    speed = pair_speed(target, instruction.engine, sides) if modes and in_psum == 0 else 1
    cycles = stream_cycles(target, sides, weight)
    return (streaming_phase(target, instruction.engine, cycles, sides, speed=speed),)


def pair_speed(target: Target, engine: Engine, sides: tuple[Access, ...]) -> int:
    """How much faster than on trn1 two inputs in SBUF are read.

    Types other than 2-byte floats share the width that `copy_speed` gives them (ESTIMATE: the width table of the
    guide has it, its list of instructions does not).
    """
    if engine is not Engine.vector:
        return 1
    if all(is_half_width(target, access.dtype) for access in sides):
        return target.vector_tensor_tensor_factor
    return target.vector_fp32_copy_factor if all(is_inner_contiguous(access) for access in sides) else 1


def is_half_width(target: Target, dtype: DType) -> bool:
    """Whether the fast modes for narrow floats take this type."""
    if dtype in _HALF_FLOATS:
        return True
    return target.vector_fp8_modes and dtype.is_float and dtype.itemsize == 1


def is_inner_contiguous(access: Access) -> bool:
    """Whether the innermost free dimension has no gaps."""
    return abs(_innermost_stride(access)) <= 1


def _innermost_stride(access: Access) -> int:
    """Step in elements of the fastest free dimension that has more than one element."""
    for size, stride in zip(reversed(access.shape[1:]), reversed(access.strides[1:])):
        if size != 1:
            return stride
    return 1


def _innermost_stride_bytes(access: Access) -> int:
    return abs(_innermost_stride(access)) * access.dtype.itemsize
