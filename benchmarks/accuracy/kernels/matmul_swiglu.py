"""The feed-forward layer silu(x @ w_gate) * (x @ w_up) @ w_down on trn2: workspace `swiglu` of kda-for-trainium."""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from benchmarks.accuracy.cases import Case, host_us, row
from benchmarks.accuracy.kernels.matmul_steps import (
    TILE,
    WIDTH,
    accumulator,
    blank,
    copied,
    limbs_of,
    load,
    load_identity,
    multiply_limbs,
    new,
    split_blocks,
    store,
    transposed_blocks,
)


@nki.jit
def swiglu(x: Any, w_up: Any, w_down: Any, w_gate: Any, block: int, in_limbs: bool) -> Any:
    """Rows kda-swiglu-swiglu_v2 (block=1, everything in limbs) and _v3_mblock (block=4, up and gate in float32).

    Dimensions: x [M/128, 128, K], w_up, w_gate [K/128, 128, N], w_down [N/128, 128, K] -> [M/128, 128, K]. Of `block`
    row tiles, x is transposed; then every tile of w_up and w_gate is loaded once and multiplied with all of them, 512
    columns at a time, and the activation is applied; its transposes are split into limbs, and every tile of w_down is
    loaded and split once for all row tiles.
    """
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    identity = load_identity()
    for first in nl.affine_range(0, x.shape[0], block):
        members = range(first, first + block)
        if in_limbs:
            lefts = [split_blocks(load(x[m]), identity) for m in members]
        else:
            lefts = [transposed_blocks(load(x[m]), identity) for m in members]
        hidden = [new((TILE, w_up.shape[2])) for _ in members]
        for start in nl.affine_range(0, w_up.shape[2], WIDTH):
            columns = slice(start, start + WIDTH)
            ups, gates = multiply_pairs(lefts, w_up[:, :, columns], w_gate[:, :, columns], in_limbs)
            for up, gate, tile in zip(ups, gates, hidden):
                up_copy, gate_copy, activated = copied(up), copied(gate), new((TILE, WIDTH))
                nisa.activation(dst=activated, op=nl.silu, data=gate_copy)
                nisa.tensor_tensor(dst=tile[:, columns], data1=activated, data2=up_copy, op=nl.multiply)
        downs = [split_blocks(tile, identity) for tile in hidden]
        for start in nl.affine_range(0, x.shape[2], WIDTH):
            columns, banks = slice(start, start + WIDTH), [accumulator(WIDTH) for _ in members]
            for n in nl.affine_range(w_down.shape[0]):
                right = limbs_of(load(w_down[n, :, columns]), through_scratch=True)
                for (high, low), bank in zip(downs, banks):
                    multiply_limbs(bank, (high[:, n, :], low[:, n, :]), right)
            for m, bank in zip(members, banks):
                store(out[m, :, columns], bank)
    return out


def multiply_pairs(lefts: list[Any], w_up: Any, w_gate: Any, in_limbs: bool) -> tuple[list[Any], list[Any]]:
    """x @ w_up and x @ w_gate of some columns, a bank of each for every row tile; K outermost."""
    ups, gates = [accumulator(WIDTH) for _ in lefts], [accumulator(WIDTH) for _ in lefts]
    for k in nl.affine_range(w_up.shape[0]):
        up, gate = w_up[k], w_gate[k]
        if in_limbs:
            right_up = limbs_of(load(up), through_scratch=True)
            right_gate = limbs_of(load(gate), through_scratch=True)
        else:
            right_up, right_gate = load(up), load(gate)
        for left, up_bank, gate_bank in zip(lefts, ups, gates):
            for bank, right in ((up_bank, right_up), (gate_bank, right_gate)):
                if in_limbs:
                    multiply_limbs(bank, (left[0][:, k, :], left[1][:, k, :]), right)
                else:
                    nisa.nc_matmul(dst=bank, stationary=left[:, k, :], moving=right)
    return ups, gates


def _swiglu(block: int, in_limbs: bool) -> Case:
    x, w_up, w_down = blank(32, 128, 1024), blank(8, 128, 3072), blank(24, 128, 1024)
    return Case(swiglu, (x, w_up, w_down, blank(8, 128, 3072), block, in_limbs), host_us)


row("kda-swiglu-swiglu_v2", lambda: _swiglu(1, True))
row("kda-swiglu-swiglu_v3_mblock", lambda: _swiglu(4, False))
