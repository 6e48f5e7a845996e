"""The work on one block: m tokens of one expert, from x to the rows of the result. Letters as in `kernel.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import spans
from nki_lib.moe.activations import gated
from nki_lib.moe.moe_prefill.loading import Experts, Unit, channels_of, places_of
from nki_lib.moe.moe_prefill.routing import SHORT, Routing

AHEAD = 2  # blocks by which rows of x are fetched before they are multiplied


@dataclass(frozen=True)
class Bench:
    """What lies in SBUF from block to block.

    rows [m, H]: x of the block after next; turned [128, h, m]: x of the next one, transposed; total [m, H] float32.
    """

    rows: Any
    turned: Any
    total: Any


class Block:
    """The blocks of a unit, one at a time.

    Pseudocode:
        hidden = act(x gate) * (x up), channels on the partitions
        transpose x of the next block; fetch x of the one after it
        fetch the rows of the result; add weight * hidden down; store them

    While hidden is finished the Tensor engine transposes, and while down is multiplied rows are on their way.
    """

    def __init__(
        self,
        x: Any,
        total: Any,
        routing: Routing,
        bench: Bench,
        unit: Unit,
        experts: Experts,
        span: Any,
        how: Any,
    ) -> None:
        self.x = x
        self.total = total
        self.routing = routing
        self.bench = bench
        self.unit = unit
        self.experts = experts
        self.count = span[1] - span[0]
        self.inner = places_of(self.count, experts.packed)
        self.width = places_of(x.shape[1], experts.packed)
        self.how = how

    def run(self, number: Any) -> None:
        """Block `number`, a register."""
        self.compute(number, self.routing.rows)

    def run_short(self, number: Any) -> None:
        """The same of a block with no more than SHORT tokens."""
        self.compute(number, SHORT)

    def compute(self, number: Any, m: int) -> None:
        """The first m tokens of a block."""
        hidden = self.multiply_gate_up(m)
        turn(self.bench, self.width)
        gather(self.bench.rows, self.x, column_of(self.routing.tokens, number, AHEAD))
        self.multiply_down(hidden, number)

    def multiply_gate_up(self, m: int) -> Any:
        """act(x gate) * (x up), channels on the partitions. Dimensions: -> [128, i, m] in the dtype of x."""
        hidden = nl.ndarray((nl.tile_size.pmax, len(self.inner), m), dtype=self.x.dtype, buffer=nl.sbuf)
        if self.x.dtype.itemsize < 4:
            for channels in self.inner:
                self.activate(hidden, self.multiply_channels(channels, m), channels)
            return hidden
        for low, high in spans(self.count, nl.tile_size.psum_bank_fmax):
            rows = self.multiply_rows(low, high, m)
            for channels in self.inner:
                if low <= channels.start < high:
                    self.activate(hidden, turn_channels(rows, channels, low), channels)
        return hidden

    def activate(self, hidden: Any, products: list[Any], channels: Any) -> None:
        """One block of hidden. Dimensions: hidden [128, i, m], products [128, m] each."""
        place = hidden[: channels.size, channels.number, :]
        gated(place, *products, *self.how, channels_of(self.unit, self.experts, channels))

    def multiply_channels(self, channels: Any, m: int) -> list[Any]:
        """x gate and x up of one block of channels. Dimensions: -> [128, m] each, in PSUM."""
        products = [nl.ndarray((channels.size, m), dtype=nl.float32, buffer=nl.psum) for _ in range(2)]
        for of in range(2):
            for depth in self.width:
                nisa.nc_matmul(
                    dst=products[of],
                    stationary=self.unit.gate_up[: depth.size, depth.number, of, channels.places],
                    moving=self.bench.turned[: depth.size, depth.number, :m],
                    accumulate=depth.number > 0,
                )
        return products

    def multiply_rows(self, low: int, high: int, m: int) -> list[Any]:
        """x gate and x up of channels low ... high - 1, tokens on the partitions. Dimensions: -> [m, n] each, in SBUF.

        For float32, of which the Tensor engine loads a held factor more slowly than it streams 128 columns.
        """
        results = []
        for of in range(2):
            product = nl.ndarray((m, high - low), dtype=nl.float32, buffer=nl.psum)
            for depth in self.width:
                nisa.nc_matmul(
                    dst=product,
                    stationary=self.bench.turned[: depth.size, depth.number, :m],
                    moving=self.unit.gate_up[: depth.size, depth.number, of, low:high],
                    accumulate=depth.number > 0,
                )
            result = nl.ndarray(product.shape, dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_copy(dst=result, src=product)
            results.append(result)
        return results

    def multiply_down(self, hidden: Any, number: Any) -> None:
        """total[tokens] += weight * (hidden down * scale + bias). Dimensions: hidden [128, i, m]."""
        routing, m = self.routing, hidden.shape[2]
        total = self.bench.total[:m, :]
        tokens = column_of(routing.tokens[:m, :], number, 0)
        weight = nl.ndarray((m, 1), dtype=nl.float32, buffer=nl.sbuf)
        gather(weight, routing.weights, column_of(routing.pairs[:m, :], number, 0))
        gather(total, self.total, tokens)
        for low, high in spans(self.x.shape[1], nl.tile_size.psum_bank_fmax):
            product = nl.ndarray((m, high - low), dtype=nl.float32, buffer=nl.psum)
            for depth in self.inner:
                nisa.nc_matmul(
                    dst=product,
                    stationary=hidden[: depth.size, depth.number, :],
                    moving=self.unit.down[: depth.size, depth.number, low:high],
                    accumulate=depth.number > 0,
                )
            for row, op in ((self.unit.scale, nl.multiply), (self.unit.bias, nl.add)):
                if row is not None:
                    result = nl.ndarray(product.shape, dtype=nl.float32, buffer=nl.sbuf)
                    nisa.tensor_tensor(dst=result, data1=product, data2=row[:m, low:high], op=op)
                    product = result
            nisa.scalar_tensor_tensor(
                dst=total[:, low:high],
                data=product,
                op0=nl.multiply,
                operand0=weight,
                op1=nl.add,
                operand1=total[:, low:high],
            )
        scatter(self.total, total, tokens)


def turn_channels(rows: list[Any], channels: Any, low: int) -> list[Any]:
    """One block of the channels from `low` on. Dimensions: rows [m, n] each -> [128, m] each, in PSUM."""
    results = []
    for matrix in rows:
        turned = nl.ndarray((channels.size, matrix.shape[0]), dtype=matrix.dtype, buffer=nl.psum)
        part = matrix[:, channels.start - low : channels.stop - low : channels.step]
        nisa.nc_transpose(dst=turned, data=part)
        results.append(turned)
    return results


def groups_of(blocks: list[Any], most: int) -> list[Any]:
    """Blocks of one size in groups of up to `most`, of about equal number."""
    groups = []
    for size in dict.fromkeys(block.size for block in blocks):
        alike = [block for block in blocks if block.size == size]
        step = -(-len(alike) // -(-len(alike) // most))
        groups += [alike[first:last] for first, last in spans(len(alike), step)]
    return groups


def make_bench(rows: int, width: int, dtype: Any) -> Bench:
    """Room for it."""
    side = nl.tile_size.pmax
    return Bench(
        nl.ndarray((rows, width), dtype=dtype, buffer=nl.sbuf),
        nl.ndarray((side, -(-width // side) + 1, rows), dtype=dtype, buffer=nl.sbuf),
        nl.ndarray((rows, width), dtype=nl.float32, buffer=nl.sbuf),
    )


def begin(x: Any, routing: Routing, bench: Bench, packed: int) -> None:
    """x of block 0, transposed, and x of block 1."""
    gather(bench.rows, x, routing.tokens[:, 0:1])
    turn(bench, places_of(x.shape[1], packed))
    gather(bench.rows, x, routing.tokens[:, 1:2])


def turn(bench: Bench, blocks: list[Any]) -> None:
    """Transpose the rows that have come. Dimensions: rows [m, H] -> turned [128, h, m]."""
    m = bench.rows.shape[0]
    most = nl.tile_size.psum_bank_fmax_bytes // (m * bench.rows.dtype.itemsize)
    for group in groups_of(blocks, most):
        side, first = group[0].size, group[0].number
        in_psum = nl.ndarray((side, len(group), m), dtype=bench.rows.dtype, buffer=nl.psum)
        for position, block in enumerate(group):
            nisa.nc_transpose(dst=in_psum[:, position, :], data=bench.rows[:, block.places])
        nisa.tensor_copy(dst=bench.turned[:side, first : first + len(group), :], src=in_psum)


def column_of(table: Any, number: Any, ahead: int) -> Any:
    """Column number + ahead of a table as a tile of its own. Dimensions: table [m, B] -> [m, 1]."""
    column = nl.ndarray((table.shape[0], 1), dtype=table.dtype, buffer=nl.sbuf)
    source = table.ap(
        pattern=[[table.shape[1], table.shape[0]], [1, 1]], offset=ahead, scalar_offset=number, indirect_dim=1
    )
    nisa.tensor_copy(dst=column, src=source, engine=nisa.engine.gpsimd)
    return column


def rows_at(tensor: Any, index: Any) -> Any:
    """The rows of a matrix in HBM that `index`, a column, names."""
    return tensor.ap(pattern=[[tensor.shape[1], index.shape[0]], [1, tensor.shape[1]]], vector_offset=index)


def gather(dst: Any, tensor: Any, index: Any) -> None:
    """dst[p] = tensor[index[p]], or its last row where the index lies after the end."""
    inside = nl.ndarray(index.shape, dtype=index.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=inside, data=index, op0=nl.minimum, operand0=float(tensor.shape[0] - 1))
    nisa.dma_copy(dst=dst, src=rows_at(tensor, inside))


def scatter(tensor: Any, src: Any, index: Any) -> None:
    """tensor[index[p]] = src[p]; an index after the end drops it."""
    nisa.dma_copy(dst=rows_at(tensor, index), src=src, oob_mode=nisa.oob_mode.skip)
