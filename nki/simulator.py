"""Running kernels on the interpreter: `nki.simulate` and the other spellings of it.

A kernel can also be called directly, which runs it with the defaults.
"""

from __future__ import annotations

from typing import Any

from nki.jit import Options, checked_grid, split
from nki.target import Target


class Simulated:
    """A kernel with the way it is to be run. Call it; brackets launch it on several cores."""

    def __init__(self, kernel: Any, options: Options) -> None:
        self.kernel = kernel
        self.options = options
        self.__name__ = kernel.__name__
        self.__doc__ = kernel.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.kernel.run(self.options, args, kwargs)

    def __getitem__(self, grid: Any) -> Simulated:
        return Simulated(self.kernel, self.options.on(checked_grid(grid)))

    def __repr__(self) -> str:
        return f"<simulation of {self.kernel!r}>"


def simulate(
    kernel: Any,
    *,
    target: str | Target | None = None,
    eager: bool | None = None,
    sanitize: bool | None = None,
) -> Simulated:
    """A callable that runs `kernel` on the interpreter: NumPy in, NumPy out; torch in, torch out.

    kernel: what `nki.jit` makes, `kernel[n]` for n cores, or a plain function. target: "trn1", "trn2" or "trn3"
    (default: NEURON_PLATFORM_TARGET_OVERRIDE, else trn3). eager: execute while staging, so that `print(tile.numpy())`
    and `breakpoint()` show values. sanitize: see `Options`.
    """
    plain, grid = split(kernel)
    return Simulated(plain, Options(target=target, grid=grid, eager=eager, sanitize=sanitize))


def cpu_simulate(kernel: Any) -> Simulated:
    """`cpu_simulate(kernel)[cores](**arguments)`: `simulate` under the name that test suites of libraries use."""
    return simulate(kernel)


def simulate_kernel(kernel: Any, *args: Any, **kwargs: Any) -> Any:
    """Run `kernel` on the arguments at once."""
    return simulate(kernel)(*args, **kwargs)
