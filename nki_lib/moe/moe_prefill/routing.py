"""Sorting tokens by expert on the device: from the choices of each token to blocks of tokens of one expert.

Letters used in every docstring here:
  T  tokens, m of them in a block, up to 128     E  experts     k  experts a token chooses
  R  = T / m, the most blocks of one expert      V  units: an expert, or a part of its width (`units.py`)
  B  the most blocks there can be                n  tiles of m tokens, token p * n + i in row p of tile i

An expert's tokens are found by the instruction that lists the places that are not zero. So a token that chooses an
expert twice is listed once, with the sum of both weights; one that chooses none of these experts is in no list.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import fetch

SHORT = 80  # tokens of a last block that is computed without its other rows: enough to keep the Tensor engine's clock
GROUP = 16  # partitions of a GpSimd core, which lists the first of them


@dataclass(frozen=True)
class Routing:
    """Which tokens are in which block, as tables whose column b is block b; places after an expert's last token are T.

    tokens [m, B] int32 in SBUF; pairs [m, B] int32: token * E + expert, where `weights` [T * E, 1] float32 in HBM has
    the weight. ends [1, E + 1, parts] int32 in SBUF: unit after unit, the block after its last; those of a unit begin
    where those of the unit before end. middles: the same without the last block if it has no more than SHORT
    tokens. rows: m; parts: units of an expert.
    """

    tokens: Any
    pairs: Any
    weights: Any
    middles: Any
    ends: Any
    rows: int
    parts: int

    def read(self, register: Any, row: Any, expert: Any, ahead: int) -> None:
        """register = the element of `ends` or `middles` of a unit, `ahead` units after the first one of an expert."""
        place = row.ap(pattern=[[row.size, 1], [1, 1]], offset=ahead, scalar_offset=expert, indirect_dim=1)
        nisa.register_load(register, place)


def route(weights: Any, indices: Any, experts: int, first: int, parts: int, spare: int) -> Routing:
    """Sort. parts: units of an expert, each of which has all its blocks; spare: columns of the tables beyond B.

    Dimensions: weights [T, k], indices [T, k] int32.

    Pseudocode:
        chosen[t, e], weight[t, e] = whether, and with which weight, t chose e
        lists[e] = the tokens that chose e; counts[e]
        ends = cumulative sum of ceil(counts / m), an expert's blocks once for each part
        for each block: its row of the lists
    """
    count, choices = indices.shape
    rows = min(count, nl.tile_size.pmax)
    most = min(experts * (count // rows), (count * choices + experts * (rows - 1)) // rows)
    blocks = most * parts + spare
    asked, names = by_token(indices), name_experts(rows, experts, first)
    lists, counts = list_tokens(choose(asked, names), count)
    middles, ends, row_of, expert_of = place_blocks(counts, rows, count // rows, parts, blocks)
    tokens, pairs = fill_tables(lists, rows, row_of, expert_of, blocks)
    return Routing(tokens, pairs, weigh(by_token(weights), asked, names), middles, ends, rows, parts)


def everyone(count: int, weights: Any, parts: int, spare: int) -> Routing:
    """The same of one expert that all tokens chose, with weight 1 unless `weights` [T, 1] in HBM says otherwise."""
    rows = min(count, nl.tile_size.pmax)
    most = count // rows
    shape = (rows, parts, most)
    tokens = nl.ndarray((rows, parts * most + spare), dtype=nl.int32, buffer=nl.sbuf)
    nisa.memset(dst=tokens, value=count)
    nisa.iota(
        dst=tokens[:, : parts * most].reshape(shape),
        pattern=[[0, parts], [rows, most]],
        offset=0,
        channel_multiplier=1,
    )
    ends = nl.ndarray((1, 2, parts), dtype=nl.int32, buffer=nl.sbuf)
    for part in range(parts):
        nisa.memset(dst=ends[:, 0, part : part + 1], value=(part + 1) * most)
    nisa.memset(dst=ends[:, 1, :], value=parts * most)
    if weights is None:
        ones = nl.ndarray((rows, most), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=ones, value=1.0)
        weights = nl.ndarray((count, 1), dtype=nl.float32, buffer=nl.private_hbm)
        fetch(dst=weights.reshape(ones.shape), src=ones)
    return Routing(tokens, tokens, weights, ends, ends, rows, parts)


def by_token(tensor: Any) -> Any:
    """[T, k] in HBM as [m, n, k] float32 in SBUF."""
    count, choices = tensor.shape
    side = min(count, nl.tile_size.pmax)
    shape = (side, count // side, choices)
    stored = nl.ndarray(shape, dtype=tensor.dtype, buffer=nl.sbuf)
    fetch(dst=stored, src=tensor.reshape(shape))
    result = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=stored)
    return result


def name_experts(rows: int, experts: int, first: int) -> Any:
    """The numbers of the experts in every row: [m, E] float32."""
    names = nl.ndarray((rows, experts), dtype=nl.float32, buffer=nl.sbuf)
    nisa.iota(dst=names, pattern=[[1, experts]], offset=first, channel_multiplier=0)
    return names


def choose(indices: Any, names: Any) -> Any:
    """How often each token chose each expert. Dimensions: indices [m, n, k], names [m, E] -> [m, n, E] float32."""
    side, tiles, choices = indices.shape
    chosen = nl.ndarray((side, tiles, names.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    for j in range(choices):
        for i in range(tiles):  # neighbours in time do not wait for each other
            place = chosen[:, i, :]
            of = indices[:, i, j : j + 1]
            if j == 0:
                nisa.tensor_scalar(dst=place, data=names, op0=nl.equal, operand0=of)
                continue
            nisa.scalar_tensor_tensor(
                dst=place, data=names, op0=nl.equal, operand0=of, op1=nl.add, operand1=place
            )
    return chosen


def weigh(weights: Any, indices: Any, names: Any) -> Any:
    """With which weight each token chose each expert. Dimensions: weights, indices [m, n, k] -> [T * E, 1] in HBM."""
    side, tiles, choices = indices.shape
    experts = names.shape[1]
    dense = nl.ndarray((side, tiles, experts), dtype=nl.float32, buffer=nl.sbuf)
    for j in range(choices):
        for i in range(tiles):
            place = dense[:, i, :]
            one = place if j == 0 else nl.ndarray(names.shape, dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_scalar(
                dst=one,
                data=names,
                op0=nl.equal,
                operand0=indices[:, i, j : j + 1],
                op1=nl.multiply,
                operand1=weights[:, i, j : j + 1],
            )
            if j > 0:
                nisa.tensor_tensor(dst=place, data1=place, data2=one, op=nl.add)
    table = nl.ndarray((side * tiles * experts, 1), dtype=nl.float32, buffer=nl.private_hbm)
    fetch(dst=table.reshape(dense.shape), src=dense)
    return table


def list_tokens(chosen: Any, count: int) -> Any:
    """The tokens of each expert. Dimensions: chosen [m, n, E] -> lists [E, T] int32, counts [1, E] int32, both in HBM.

    Pseudocode:
        for 128 experts: transpose `chosen`, in the order of the tokens
            for 8 of them: one to each GpSimd core; list the places that are not 0
    """
    experts = chosen.shape[2]
    lists = nl.ndarray((experts, count), dtype=nl.int32, buffer=nl.private_hbm)
    counts = nl.ndarray((experts, 1), dtype=nl.int32, buffer=nl.private_hbm)
    cores = nl.tile_size.pmax // GROUP
    for start in range(0, experts, nl.tile_size.pmax):
        stop = min(start + nl.tile_size.pmax, experts)
        marks = transpose_tiles(chosen[:, :, start:stop])
        for low in range(start, stop, cores):
            high = min(low + cores, stop)
            last = (high - low - 1) * GROUP + 1
            spread = nl.ndarray((last, count), dtype=nl.float32, buffer=nl.sbuf)
            found = nl.ndarray((last, count + 1), dtype=nl.int32, buffer=nl.sbuf)
            fetch(dst=spread[0:last:GROUP, :], src=marks[low - start : high - start, :])
            nisa.nonzero_with_count(dst=found, src=spread, padding_val=count)
            fetch(dst=lists[low:high, :], src=found[0:last:GROUP, :count])
            fetch(dst=counts[low:high, :], src=found[0:last:GROUP, count : count + 1])
    return lists, counts.reshape((1, experts))


def transpose_tiles(chosen: Any) -> Any:
    """[m, n, e] -> [e, m * n], token p * n + i from row p of tile i."""
    side, tiles, experts = chosen.shape
    result = nl.ndarray((experts, side, tiles), dtype=chosen.dtype, buffer=nl.sbuf)
    step = nl.tile_size.psum_bank_fmax // side
    for first in range(0, tiles, step):
        stop = min(first + step, tiles)
        turned = nl.ndarray((experts, stop - first, side), dtype=chosen.dtype, buffer=nl.psum)
        for i in range(first, stop):
            nisa.nc_transpose(dst=turned[:, i - first, :], data=chosen[:, i, :])
        nisa.tensor_copy(dst=result[:, :, first:stop].permute((0, 2, 1)), src=turned)
    return result.reshape((experts, side * tiles))


def place_blocks(counts: Any, rows: int, most: int, parts: int, blocks: int) -> Any:
    """Where blocks begin and end, and what each is made of.

    Dimensions: counts [1, E] int32 in HBM; rows: m; most: R -> middles, ends [1, E + 1, parts] int32; row_of and
    expert_of, lists of [128, 1], for 128 blocks each: the row of lists [E * R, m], after the end of them for blocks
    that do not exist.

    Pseudocode:
        size = ceil(counts / m); ends = cumulative sum of size, each once for each part
        middles = ends, or ends - 1 if the last block is short
        row_of[b] = b + sum over units that end before b of (R - size, or -size if parts of the expert follow)
        expert_of[b] = how many experts end before b
    """
    experts = counts.shape[1]
    shape = (nl.tile_size.pmax, experts, parts)
    held = nl.ndarray(shape[:2], dtype=counts.dtype, buffer=nl.sbuf)
    fetch(dst=held, src=counts.broadcast(0, shape[0]))
    size, full = (blocks_in(held, rows, parts, extra) for extra in ((rows - 1) / 2, (rows - 1) / 2 - SHORT))
    ones = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=ones, value=1.0)
    ends = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor_scan(dst=ends, data0=ones, data1=size, initial=0.0, op0=nl.multiply, op1=nl.add)
    skip = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=skip, data=size, op0=nl.multiply, operand0=-1.0)
    after = skip[:, :, parts - 1]
    nisa.tensor_scalar(dst=after, data=after, op0=nl.add, operand0=float(most))
    row_of, expert_of = [], []
    for first in range(0, blocks, shape[0]):
        block = nl.ndarray((shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.iota(dst=block, pattern=[[1, 1]], offset=first, channel_multiplier=1)
        row_of.append(weigh_ended(ends, block, skip, block))
        expert_of.append(weigh_ended(ends[:, :, parts - 1], block, ones[:, :, parts - 1], None))
    middles = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=middles, data1=ends, data2=size, op=nl.subtract)
    nisa.tensor_tensor(dst=middles, data1=middles, data2=full, op=nl.add)
    return as_row(middles, ends), as_row(ends, ends), row_of, expert_of


def blocks_in(counts: Any, rows: int, parts: int, extra: float) -> Any:
    """(counts + extra) / m to the nearest integer. Dimensions: counts [128, E] -> [128, E, parts] float32."""
    whole = nl.ndarray(counts.shape, dtype=nl.int32, buffer=nl.sbuf)  # conversion rounds
    nisa.tensor_scalar(dst=whole, data=counts, op0=nl.add, operand0=extra, op1=nl.multiply, operand1=1 / rows)
    result = nl.ndarray((*counts.shape, parts), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=whole.expand_dim(2).broadcast(2, parts))
    return result


def as_row(values: Any, ends: Any) -> Any:
    """Partition 0 as integers, with the end of all after them. Dimensions: [128, E, parts] -> [1, E + 1, parts]."""
    _, experts, parts = values.shape
    row = nl.ndarray((1, experts + 1, parts), dtype=nl.int32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=row[:, :experts, :], src=values[:1, :, :])
    nisa.tensor_copy(dst=row[:, experts, :], src=ends[:1, experts - 1, parts - 1 :].broadcast(1, parts))
    return row


def weigh_ended(ends: Any, block: Any, weight: Any, start: Any) -> Any:
    """start + the sum of the weights of what ends at or before the block.

    Dimensions: ends, weight [128, ...]; block, start [128, 1] float32 -> [128, 1] int32 with a start, else float32.
    """
    passed = nl.ndarray(ends.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.scalar_tensor_tensor(
        dst=passed, data=ends, op0=nl.less_equal, operand0=block, op1=nl.multiply, operand1=weight
    )
    total = nl.ndarray(block.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=total, op=nl.add, data=passed, axis=tuple(range(1, len(ends.shape))))
    if start is None:
        return total
    result = nl.ndarray(block.shape, dtype=nl.int32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=result, data1=total, data2=start, op=nl.add)
    return result


def fill_tables(lists: Any, rows: int, row_of: list[Any], expert_of: list[Any], blocks: int) -> Any:
    """Tokens, and pairs of token and expert. Dimensions: lists [E, T] in HBM -> tokens, pairs [m, blocks], int32."""
    experts, count = lists.shape
    flat = lists.reshape((experts * count // rows, rows))
    tokens = nl.ndarray((rows, blocks), dtype=nl.int32, buffer=nl.sbuf)
    pairs = nl.ndarray((rows, blocks), dtype=nl.int32, buffer=nl.sbuf)
    side = nl.tile_size.pmax
    for i in range(len(row_of)):
        start, stop = i * side, min((i + 1) * side, blocks)
        line = nl.ndarray((stop - start, rows), dtype=nl.int32, buffer=nl.sbuf)
        nisa.memset(dst=line, value=count)
        source = flat.ap(
            pattern=[[rows, stop - start], [1, rows]], vector_offset=row_of[i][: stop - start, :]
        )
        nisa.dma_copy(dst=line, src=source, oob_mode=nisa.oob_mode.skip)
        pair = nl.ndarray((stop - start, rows), dtype=nl.int32, buffer=nl.sbuf)
        nisa.tensor_scalar(
            dst=pair,
            data=line,
            op0=nl.multiply,
            operand0=float(experts),
            op1=nl.add,
            operand1=expert_of[i][: stop - start, :],
        )
        for table, data in ((tokens, line), (pairs, pair)):
            turned = nl.ndarray((rows, stop - start), dtype=nl.int32, buffer=nl.psum)
            nisa.nc_transpose(dst=turned, data=data)
            nisa.tensor_copy(dst=table[:, start:stop], src=turned)
    return tokens, pairs
