"""Another machine to time a program on: one whose DMA, clocks or hand-offs are faster by some factor.

A factor of 2 halves the time that a resource takes, infinity takes it away: what remains is what the other resources
need. Values never change, only the clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from nki import errors
from nki.target import Target

_ALMOST_INFINITE = 10**9


class Knob(NamedTuple):
    """A resource: the rates that grow with its factor and the times that shrink."""

    doc: str
    rates: tuple[str, ...] = ()
    times: tuple[str, ...] = ()


KNOBS: dict[str, Knob] = {
    "tensor": Knob("the Tensor engine's clock and warm-up", ("tensor_clock_mhz",), ("tensor_warmup_ps",)),
    "vector": Knob("the Vector engine's clock", ("vector_clock_mhz",), ("vector_latency_ps",)),
    "scalar": Knob(
        "the Scalar engine's clock and table loads",
        ("scalar_clock_mhz",),
        ("scalar_latency_ps", "scalar_table_load_ps"),
    ),
    "gpsimd": Knob("the GpSimd engine's clock", ("gpsimd_clock_mhz",)),
    "dma_bandwidth": Knob(
        "bytes and descriptors a DMA engine moves",
        ("dma_engine_bytes_per_us", "dma_engine_store_bytes_per_us"),
        ("dma_descriptor_ps",),
    ),
    "dma_latency": Knob(
        "from the start of a DMA to its data, and from its data to the semaphore",
        times=(
            "dma_static_start_ps",
            "dma_swdge_start_ps",
            "dma_swdge_spread_ps",
            "dma_hwdge_start_ps",
            "dma_completion_ps",
        ),
    ),
    "dma_issue": Knob(
        "starting DMAs: the engines' time, the descriptor generators, the queues",
        times=(
            "dma_static_issue_ps",
            "dma_swdge_issue_ps",
            "dma_swdge_prepare_ps",
            "dma_hwdge_issue_ps",
            "dma_queue_floor_ps",
        ),
    ),
    "semaphores": Knob(
        "hand-offs between engines",
        times=("semaphore_signal_ps", "semaphore_wake_ps", "semaphore_instruction_ps"),
    ),
}
"""What can be changed, by name."""


def check_factors(factors: Mapping[str, float]) -> None:
    """Raise ArgumentError for a name that is no resource and a factor that is not above 0."""
    for name, factor in factors.items():
        if name not in KNOBS:
            raise errors.ArgumentError(
                f"nki.profile: what_if has no resource {name!r}",
                operand="what_if",
                found=repr(name),
                allowed=", ".join(KNOBS),
                remedy='name resources and how many times as fast they are: what_if={"dma_bandwidth": 2}',
            )
        if not isinstance(factor, (int, float)) or isinstance(factor, bool) or not factor > 0:
            raise errors.ArgumentError(
                f"nki.profile: what_if[{name!r}] is not a factor",
                operand="what_if",
                found=repr(factor),
                allowed="a number above 0; 2 is twice as fast, math.inf takes no time",
                remedy=f'pass a factor: what_if={{"{name}": 2}}',
            )


def changed(target: Target, factors: Mapping[str, float]) -> Target:
    """The machine with resources that many times as fast; see `check_factors`."""
    check_factors(factors)
    values: dict[str, Any] = {}
    for name, factor in factors.items():
        knob = KNOBS[name]
        for rate in knob.rates:
            grown = getattr(target, rate) * (_ALMOST_INFINITE if math.isinf(factor) else factor)
            values[rate] = max(1, round(grown))
        for time in knob.times:
            values[time] = 0 if math.isinf(factor) else round(getattr(target, time) / factor)
    return replace(target, **values)
