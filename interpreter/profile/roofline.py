"""Where a kernel stands between what the PE array and what the device memory could do."""

from __future__ import annotations

from dataclasses import dataclass

from interpreter.timing.timeline import Timeline

_PS_PER_S = 10**12
_US_PER_S = 10**6


@dataclass(frozen=True)
class Roofline:
    """Shares of the peaks of one core, as the profiler's documentation defines them (neuron-explorer/glossary.rst).

    flops: operations of the PE array that compute, two for each multiply-add. moving_flops: those that only move data
    (transposes). hbm_bytes: read from and written to device memory.
    mfu: flops over what the array does at its full 2-byte rate in the same time. hfu: the same with moving_flops.
    mbu: hbm_bytes over what one HBM stack transfers in the same time, which is what that profiler divides by.
    intensity: flops per byte. ridge: the intensity above which the array, not the memory, is the bound.
    """

    flops: int
    moving_flops: int
    hbm_bytes: int
    mfu: float
    hfu: float
    mbu: float
    intensity: float
    ridge: float

    @property
    def bound(self) -> str:
        """ "compute" or "memory": which of both peaks is nearer; "" if neither is used."""
        if not self.mfu and not self.mbu:
            return ""
        return "compute" if self.intensity >= self.ridge else "memory"


def roofline(timeline: Timeline) -> Roofline:
    """Add the work of all instructions up."""
    target = timeline.target
    macs = moving = moved = 0
    for trace in timeline.traces:
        for charge in trace.charges:
            macs += charge.macs
            moving += charge.moving_macs
            if charge.dma is not None:
                moved += charge.dma.bytes * (charge.dma.from_hbm + charge.dma.into_hbm)
    cores = max(1, len(timeline.traces))
    peak_flops = 2 * target.tensor_macs_per_cycle * target.tensor_clock_mhz * _US_PER_S
    peak_bytes = target.hbm_chip_bytes_per_us * _US_PER_S // target.hbm_stacks
    seconds = cores * timeline.latency_ps / _PS_PER_S
    return Roofline(
        flops=2 * (macs - moving),
        moving_flops=2 * moving,
        hbm_bytes=moved,
        mfu=2 * (macs - moving) / peak_flops / seconds if seconds else 0.0,
        hfu=2 * macs / peak_flops / seconds if seconds else 0.0,
        mbu=moved / peak_bytes / seconds if seconds else 0.0,
        intensity=2 * (macs - moving) / moved if moved else 0.0,
        ridge=peak_flops / peak_bytes,
    )
