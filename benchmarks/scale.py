"""`python -m benchmarks.scale`: time of the time model for 10 k, 100 k and 1 M instructions, and its memory.

Two programs: tiny additions on one engine, and a stream of loads, products, copies and stores on four. Staging comes
before and is not counted. A minute and 2 GiB.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from benchmarks.kernels import tiny
from nki.jit import Options

SIZES = (10_000, 100_000, 1_000_000)
MOST_SECONDS = 10.0
MOST_GIB = 4.0
MOST_SPREAD = 1.5


@nki.jit
def stream(x: Any, count: int) -> Any:
    """count / 4 times: load a tile [128, 64], multiply it with itself, copy the product, store it."""
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    for _ in range(count // 4):
        tile = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf)
        result = nl.ndarray((64, 64), dtype=x.dtype, buffer=nl.sbuf)
        total = nl.ndarray((64, 64), dtype=nl.float32, buffer=nl.psum)
        nisa.dma_copy(dst=tile, src=x)
        nisa.nc_matmul(dst=total, stationary=tile, moving=tile)
        nisa.tensor_copy(dst=result, src=total)
        nisa.dma_copy(dst=out[:64], src=result)
    return out


KERNELS = {"tiny": (tiny, (32, 8)), "stream": (stream, (128, 64))}


KERNELS = {"tiny": (tiny, (32, 8)), "stream": (stream, (128, 64))}


def seconds(kernel: Any, array: np.ndarray, count: int) -> float:
    """How long timing takes once the program is finished."""
    compiled = kernel.compiled(Options(target="trn2"), (array, count), {})
    assert compiled.waits
    start = time.process_time()
    assert compiled.timeline().latency_ps > 0
    return time.process_time() - start


def measured(name: str) -> bool:
    """Print a line per size of one kernel; whether all bars are held. Memory counts staging too."""
    kernel, shape = KERNELS[name]
    each = []
    held = True
    for count in SIZES:
        taken = seconds(kernel, np.ones(shape, np.float32), count)
        gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
        each.append(taken / count)
        held &= taken <= MOST_SECONDS and gib <= MOST_GIB
        print(f"{name:<8}{count:>10,} instructions: {taken:6.2f} s, {gib:4.1f} GiB at most", flush=True)
    spread = max(each) / min(each)
    print(
        f"{name:<8} {min(each) * 1e6:.1f} to {max(each) * 1e6:.1f} us an instruction: {spread:.2f}x",
        flush=True,
    )
    return held and spread <= MOST_SPREAD


def main() -> int:
    """Every kernel in a process of its own, so that memory is its own. The exit code is 1 if a bar is missed."""
    if len(sys.argv) > 1:
        return 0 if measured(sys.argv[1]) else 1
    command = [sys.executable, "-m", "benchmarks.scale"]
    return max(subprocess.run([*command, name], check=False).returncode for name in KERNELS)


if __name__ == "__main__":
    sys.exit(main())
