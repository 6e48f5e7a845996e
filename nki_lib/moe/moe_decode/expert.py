"""One expert on all tokens, block by block of its width: into the hidden channels, and out of them.

Letters used in every docstring here:
  T  tokens, up to 128    H  width of the model, h = ceil(H / 128) slabs   I  width of an expert, i slabs in a block
  m  channels of a slab, up to 128

Channels are on the partitions, tokens in the free axis. See `kernel.py` for why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import spans
from nki_lib.moe.activations import NO_CHANNELS, Channels, gated
from nki_lib.moe.moe_decode.loading import load_columns, runs, slabs
from nki_lib.moe.moe_decode.matrix import Matrix, engine_dtype, packed_in, rows_of_a_piece
from nki_lib.moe.moe_decode.routing import Rows
from nki_lib.quantization.formats import BLOCK

BLOCK_BYTES = 98304  # of a partition for the weights of a block: the next one finds room while it is computed
HIDDEN_BANKS = 3  # of PSUM for gate and up of a block


@dataclass(frozen=True)
class Expert:
    """What lies in HBM of one expert: gate_up [H, 2, I], down [I, H]; None for what it has not.

    Biases [2, I], [H]; scales [2, I], [H] of fp8, or of MX [H/32, 2, I], [I/32, H]. In fp4 two neighbours along the
    contracted axis share a byte.
    """

    gate_up: Any
    down: Any
    gate_up_bias: Any = None
    down_bias: Any = None
    gate_up_scale: Any = None
    down_scale: Any = None


@dataclass(frozen=True)
class Layout:
    """How the weights of all experts are cut.

    block: channels of I at a time. rows: rows of gate_up in a piece. columns: columns of down in a piece. dtype: what
    the Tensor engine gets. spread: for MX, see `matrix`.
    """

    block: int
    rows: int
    columns: int
    dtype: Any
    packed: int
    blocks: bool
    spread: Any = None


def layout_of(expert: Expert, width: int, tokens: int, dtype: Any) -> Layout:
    """Blocks of about equal size that fit twice, and whose gate and up find room in PSUM."""
    side, packed = nl.tile_size.pmax, packed_in(expert.gate_up.dtype)
    blocks = expert.gate_up_scale is not None and len(expert.gate_up_scale.shape) == 3
    inner = expert.gate_up.shape[2]
    given = engine_dtype(expert.gate_up.dtype, dtype, blocks)
    per_slab = (2 * -(-width // side) * side + width) * given.itemsize
    room = HIDDEN_BANKS * nl.tile_size.psum_bank_fmax // (2 * tokens)
    unit = side * packed
    most = min(BLOCK_BYTES // per_slab, room, BLOCK if blocks else room) // packed
    units = -(-inner // unit)
    step = -(-units // -(-units // max(1, most))) * unit
    rows = rows_of_a_piece(2 * min(step, inner), given, packed, blocks)
    columns = rows_of_a_piece(-(-min(step, inner) // unit), given, packed, False)
    return Layout(step, rows, columns, given, packed, blocks)


def add_expert(total: Any, columns: Any, expert: Expert, rows: Rows, bend: Any, layout: Layout) -> None:
    """total += weight * expert(x) for the tokens that chose it.

    Dimensions: total [128, h, T] float32, columns [128, h, T] (x transposed). bend: name, alpha and limit of the
    activation.

    Pseudocode:
        for each block of I:
            hidden = act(x gate + bias) * (x up + bias)
            total += weight * (hidden down, scaled, with the bias in the first block)
    """
    inner = expert.gate_up.shape[2]
    outs = slabs(0, expert.down.shape[1])
    scale = None if layout.blocks else load_columns(expert.down_scale, outs)
    bias = load_columns(expert.down_bias, outs)
    for first, stop in spans(inner, layout.block):
        hidden = multiply_in(columns, expert, (first, stop), bend, layout)
        after = (scale, bias if first == 0 else None)
        multiply_out(total, hidden, expert, (first, stop), rows, after, layout)


def multiply_in(columns: Any, expert: Expert, block: Any, bend: Any, layout: Layout) -> Any:
    """The hidden channels of a block of I. Dimensions: columns [128, h, T] -> [128, i, T] in their dtype.

    Pseudocode:
        for each piece of gate_up: load it; for each of its slabs of H: gate, up += slab^T x
        activation
    """
    (first, stop), tokens, side = block, columns.shape[2], nl.tile_size.pmax
    places, width = slabs(0, expert.gate_up.shape[0] * layout.packed, layout.packed), stop - first
    outs = slabs(first, stop, layout.packed)
    channels = load_channels(expert, outs, block, layout)
    both = nl.ndarray((side, 2, len(outs), tokens), dtype=nl.float32, buffer=nl.psum)
    scales = expert.gate_up_scale[:, :, first:stop] if layout.blocks else None
    matrix = Matrix(expert.gate_up[:, :, first:stop], layout.dtype, scales, layout.spread)
    for low, high in spans(expert.gate_up.shape[0], layout.rows):
        tile = matrix.load(low, high)
        for slab in range(tile.shape[1]):
            place = low // side * layout.packed + slab
            m = places[place].count
            for which in range(2):
                weights = tile[:m, slab, which * width : (which + 1) * width]
                for i in range(len(outs)):
                    nisa.nc_matmul(
                        dst=both[: outs[i].count, which, i, :],
                        stationary=weights[:, outs[i].of(first)],
                        moving=columns[:m, place, :],
                        accumulate=place > 0,
                    )
    hidden = nl.ndarray((side, len(outs), tokens), dtype=columns.dtype, buffer=nl.sbuf)
    for begin, end, m in runs(outs, len(outs) if channels is None else 1):
        parts = [t[:m, begin:end, :] for t in (hidden, both[:, 0, :, :], both[:, 1, :, :])]
        gated(*parts, *bend, NO_CHANNELS if channels is None else channel(channels, m, begin))
    return hidden


def load_channels(expert: Expert, outs: list[Any], block: Any, layout: Layout) -> Any:
    """Scales and biases of gate and up as lists of [128, i], in the order of `Channels`; None if there are none."""
    first, stop = block
    given = (None if layout.blocks else expert.gate_up_scale, expert.gate_up_bias)
    if given == (None, None):
        return None
    found = []
    for tensor in given:
        for which in range(2):
            row = None if tensor is None else tensor[which, first:stop]
            found.append(load_columns(row, outs, first))
    return found


def channel(channels: list[Any], m: int, i: int) -> Channels:
    """Those of one slab."""
    return Channels(*[None if t is None else t[:m, i : i + 1] for t in channels])


def multiply_out(
    total: Any, hidden: Any, expert: Expert, block: Any, rows: Rows, after: Any, layout: Layout
) -> None:
    """total += weight * (hidden down * scale + bias).

    Dimensions: total [128, h, T], hidden [128, i, T]; after: scale and bias [128, h] or None.

    Pseudocode:
        for each piece of down, some columns of the block's rows: load it
            for each bank of PSUM full of its channels of H: multiply, add
    """
    (first, stop), packed, side = block, layout.packed, nl.tile_size.pmax
    ins, tokens = slabs(first, stop, packed), hidden.shape[2]
    bank = nl.tile_size.psum_bank_fmax // tokens
    for low, high in spans(expert.down.shape[1], layout.columns):
        scales = None
        if layout.blocks:
            scales = expert.down_scale[first // BLOCK : stop // BLOCK, low:high]
        part = expert.down[first // packed : stop // packed, low:high]
        tile = Matrix(part, layout.dtype, scales, layout.spread).load(0, (stop - first) // packed)
        outs = slabs(low, high)
        for begin, end, m in runs(outs, bank):
            result = nl.ndarray((m, end - begin, tokens), dtype=nl.float32, buffer=nl.psum)
            for j in range(begin, end):
                for i in range(len(ins)):
                    nisa.nc_matmul(
                        dst=result[:, j - begin, :],
                        stationary=tile[: ins[i].count, i, outs[j].of(low)],
                        moving=hidden[: ins[i].count, i, :],
                        accumulate=i > 0,
                    )
            here = slice(low // side + begin, low // side + end)
            terms = [None if t is None else t[:m, here] for t in after]
            add_rows(total[:m, here, :], result, rows, *terms)


def add_rows(total: Any, result: Any, rows: Rows, scale: Any, bias: Any) -> None:
    """total += weight * (result * scale + bias) where chosen: what an expert makes of other tokens has no effect.

    Dimensions: total, result [m, j, T]; scale, bias [m, j] or None; rows [128, T].
    """
    m, count, tokens = result.shape
    weight = None if rows.weight is None else rows.weight[:m, :].expand_dim(1).broadcast(1, count)
    term = result
    for operand, op in ((scale, nl.multiply), (bias, nl.add), (weight, nl.multiply)):
        if operand is None:
            continue
        if operand is not weight:
            operand = operand.expand_dim(2).broadcast(2, tokens)
        new = nl.ndarray(result.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=new, data1=term, data2=operand, op=op)
        term = new
    if rows.chosen is None:
        nisa.tensor_tensor(dst=total, data1=total, data2=term, op=nl.add)
        return
    new = nl.ndarray(result.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=new, data1=total, data2=term, op=nl.add)
    predicate = rows.chosen[:m, :].expand_dim(1).broadcast(1, count)
    nisa.tensor_copy_predicated(dst=total, src=new, predicate=predicate)
