"""Who chose what, on the device: a table of weights, and the list of the experts that must be read.

Letters:  T  tokens, up to 128   E  experts   k  choices of a token
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import load, spans


@dataclass(frozen=True)
class Rows:
    """What one expert's results are multiplied by, the same on every partition, [128, T].

    weight: float32, None for 1. chosen: uint8, which tokens take part, None for all.
    """

    weight: Any = None
    chosen: Any = None


def make_table(weights: Any, indices: Any, experts: int) -> Any:
    """[T, E, 2] float32: the weight that a token gives an expert, and how often it chose it.

    Dimensions: weights, indices [T, k] in HBM. An index that names no expert (-1) takes no part.

    Pseudocode:
        for each choice j: same = (0 ... E-1 == indices[:, j])
            table[:, :, 0] += same * weights[:, j]; table[:, :, 1] += same
    """
    tokens, choices = indices.shape
    given, index = load(weights), load(indices)
    number, weight = (nl.ndarray((tokens, choices), dtype=nl.float32, buffer=nl.sbuf) for _ in range(2))
    nisa.tensor_copy(dst=number, src=index)
    nisa.tensor_copy(dst=weight, src=given)
    names = nl.ndarray((tokens, experts), dtype=nl.float32, buffer=nl.sbuf)
    nisa.iota(dst=names, pattern=[[1, experts]], offset=0, channel_multiplier=0)
    table = nl.ndarray((tokens, experts, 2), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=table, value=0.0)
    term = nl.ndarray((tokens, experts), dtype=nl.float32, buffer=nl.sbuf)
    for j in range(choices):
        mine = number[:, j : j + 1]
        nisa.tensor_scalar(
            dst=term, data=names, op0=nl.equal, operand0=mine, op1=nl.multiply, operand1=weight[:, j : j + 1]
        )
        nisa.tensor_tensor(dst=table[:, :, 0], data1=table[:, :, 0], data2=term, op=nl.add)
        nisa.scalar_tensor_tensor(
            dst=table[:, :, 1], data=names, op0=nl.equal, operand0=mine, op1=nl.add, operand1=table[:, :, 1]
        )
    return table


def list_chosen(table: Any) -> Any:
    """[1, E + 1] int32: the experts that some token chose, in order; their number is the last entry.

    Dimensions: table [T, E, 2].
    """
    tokens, experts, _ = table.shape
    ones = nl.ndarray((tokens, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=ones, value=1.0)
    count = nl.ndarray((1, experts), dtype=nl.float32, buffer=nl.sbuf)
    for first, stop in spans(experts, nl.tile_size.psum_bank_fmax):
        total = nl.ndarray((1, stop - first), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=total, stationary=ones, moving=table[:, first:stop, 1])
        nisa.tensor_copy(dst=count[:, first:stop], src=total)
    found = nl.ndarray((1, experts + 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.nonzero_with_count(dst=found, src=count)
    return found


def rows_of(table: Any, expert: Any) -> Rows:
    """What the expert in a register is multiplied by. Dimensions: table [T, E, 2] -> two of [128, T].

    A transpose moves bits: a token whose weight is NaN does not spoil the others, as it would in a product.
    """
    tokens, side = table.shape[0], nl.tile_size.pmax
    mine = table.select(1, expert)
    both = nl.ndarray((side, 2, tokens), dtype=nl.float32, buffer=nl.psum)
    for i in range(2):
        nisa.nc_transpose(dst=both[:, i, :], data=mine[:, i : i + 1].broadcast(1, side))
    weight = nl.ndarray((side, tokens), dtype=nl.float32, buffer=nl.sbuf)
    chosen = nl.ndarray((side, tokens), dtype=nl.uint8, buffer=nl.sbuf)
    nisa.tensor_copy(dst=weight, src=both[:, 0, :])
    nisa.tensor_copy(dst=chosen, src=both[:, 1, :])
    return Rows(weight, chosen)
