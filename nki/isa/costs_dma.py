"""What a DMA moves, in closed form: how many descriptors of how many bytes, from the two access patterns.

A descriptor is one contiguous run of bytes in the source and in the destination. The machine turns a `Transfer` into
time; nothing here knows a clock.
"""

from __future__ import annotations

from math import gcd

from nki.enums import dge_mode
from nki.ir.cost import Phase, Transfer
from nki.ir.program import Access
from nki.target import Target


def contiguous_run(access: Access) -> int:
    """Elements that lie side by side in memory before the window jumps; on chip a run ends with its partition, with an
    index per row at the end of the row."""
    rows = access.dynamic is not None and access.dynamic.kind == "vector"
    first = 1 if access.memory.on_chip or rows else 0
    run = 1
    for size, stride in zip(reversed(access.shape[first:]), reversed(access.strides[first:])):
        if size == 1:
            continue
        if stride != run:
            break
        run *= size
    return run


def copy_transfer(
    target: Target, dst: Access, src: Access, mode: dge_mode, efficiency: float = 1.0
) -> Transfer:
    """The transfer that copies `src` to `dst`, element by element in row-major order.

    Runs that do not nest (6 and 4 elements) are cut at their common divisor. With different dtypes the engine reads
    one width and writes the other; it streams at the rate of the wider side, so that side's bytes are counted.
    A copy within HBM may be one long run: it is cut so that every DMA engine has a part of it.
    """
    run = gcd(contiguous_run(dst), contiguous_run(src))
    width = max(dst.dtype.itemsize, src.dtype.itemsize)
    pieces = dst.size // run
    if dst.memory.is_hbm and src.memory.is_hbm:
        cut = _shares(run, -(-target.dma_engines // pieces), run * width // target.dma_row_bytes_least)
        run, pieces = run // cut, pieces * cut
    return Transfer(pieces, run * width, mode, efficiency)


def _shares(run: int, wanted: int, most: int) -> int:
    """The largest number of equal parts of a run, up to `wanted` and up to `most`."""
    for parts in range(min(wanted, most), 1, -1):
        if run % parts == 0:
            return parts
    return 1


def copy_phases(
    target: Target, dst: Access, src: Access, mode: dge_mode, efficiency: float = 1.0
) -> tuple[Phase, ...]:
    """A DMA copy as phases: one transfer, whose time is the business of queues and DMA engines."""
    return (Phase(0, kind="dma", transfer=copy_transfer(target, dst, src, mode, efficiency)),)
