"""What instructions that need the other core share."""

from __future__ import annotations

from nki import errors

_CORES = 2


def cores_fault(grid: int | None) -> errors.NkiError | None:
    """The error if the kernel was not launched on two cores."""
    if grid == _CORES:
        return None
    return errors.RuleError(
        "this instruction meets the other core, but the kernel runs on one",
        found="kernel(...)" if grid is None else f"kernel[{grid}](...)",
        allowed=f"kernel[{_CORES}](...)",
        remedy=f"launch with kernel[{_CORES}](...), or leave the instruction out on one core",
    )
