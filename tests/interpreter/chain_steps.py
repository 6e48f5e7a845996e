"""The steps of `chains.py`: how each becomes an instruction. Tests nothing.

Every step gets the tiles, the HBM tensors and all that a step may need: windows, columns or numbers, a random number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from tests.interpreter.chains import F, P, View

TT_OPS = (nl.add, nl.subtract, nl.maximum, nl.minimum, nl.greater, nl.equal)
REDUCE_CMDS = ("idle", "reset", "reduce", "reset_reduce")


def window(tile: Any, view: View) -> Any:
    """The tensor that a `View` describes."""
    flat = tile.reshape((P, F))
    numbers = view.numbers
    if view.kind == "range":
        start, n, step = numbers
        return flat[:, start : start + (n - 1) * step + 1 : step]
    if view.kind == "boxes":
        rows, columns, row, column, turn = numbers
        box = tile.reshape((P, 4, 6))[:, row : row + rows, column : column + columns]
        return box.permute((0, 2, 1)) if turn else box
    if view.kind in ("repeat", "pile"):
        return flat.ap([[F, P], [0, numbers[1]]], offset=numbers[0])
    return tile.reshape((P, 4, 6)).permute((0, 2, 1)) if view.kind == "turned" else tile


def _operand(tiles: list[Any], value: Any) -> Any:
    return window(tiles[value.tile], value) if isinstance(value, View) else value


def _copy(tiles, hbm, dst, a, b, c, s0, s1, out, number, ends):
    nisa.tensor_copy(dst=_operand(tiles, dst), src=_operand(tiles, a))


def _tt(tiles, hbm, dst, a, b, c, s0, s1, out, number, ends):
    op = TT_OPS[number % len(TT_OPS)]
    nisa.tensor_tensor(dst=_operand(tiles, dst), data1=_operand(tiles, a), data2=_operand(tiles, b), op=op)


def _ts(tiles, hbm, dst, a, b, c, s0, s1, out, number, ends):
    second = {"op1": TT_OPS[number % 4], "operand1": _operand(tiles, s1)} if number & 64 else {}
    nisa.tensor_scalar(
        dst=_operand(tiles, dst),
        data=_operand(tiles, a),
        op0=TT_OPS[number % len(TT_OPS)],
        operand0=_operand(tiles, s0),
        reverse0=bool(number & 32),
        **second,
    )


def _stt(tiles, hbm, dst, a, b, c, s0, s1, out, number, ends):
    nisa.scalar_tensor_tensor(
        dst=_operand(tiles, dst),
        data=_operand(tiles, a),
        op0=TT_OPS[number % 4],
        operand0=_operand(tiles, s0),
        op1=TT_OPS[number // 4 % 4],
        operand1=_operand(tiles, b),
    )


def _act(tiles, hbm, dst, a, b, c, s0, s1, out, number, ends):
    command = REDUCE_CMDS[number % 4]
    result = _operand(tiles, out) if number & 16 else None
    nisa.activation(
        dst=_operand(tiles, dst),
        op=(nl.copy, nl.relu, nl.abs)[number % 3],
        data=_operand(tiles, a),
        bias=_operand(tiles, s0) if number & 32 else None,
        scale=_operand(tiles, s1) if number & 64 else 1.0,
        reduce_op=nl.add if command.endswith("reduce") else None,
        reduce_res=result,
        reduce_cmd=nisa.reduce_cmd[command],
    )


def _tsr(tiles, hbm, dst, a, b, c, s0, s1, out, number, ends):
    nisa.tensor_scalar_reduce(
        dst=_operand(tiles, dst),
        data=_operand(tiles, a),
        op0=TT_OPS[number % 4],
        operand0=_operand(tiles, s0),
        reduce_op=(nl.add, nl.maximum)[number & 1],
        reduce_res=_operand(tiles, out),
    )


def _fold(tiles, hbm, dst, a, b, c, s0, s1, out, number, ends):
    data = _operand(tiles, a)
    axes = tuple(range(1 + number % (len(data.shape) - 1), len(data.shape)))
    kept = data.shape[: axes[0]]
    n = int(np.prod(kept[1:]))
    target = tiles[out.tile].reshape((P, F))[:, number % (F - n + 1) : number % (F - n + 1) + n]
    nisa.tensor_reduce(
        dst=target, op=(nl.add, nl.maximum)[number & 1], data=data, axis=axes, negate=bool(number & 8)
    )


def _set(tiles, hbm, dst, a, b, c, s0, s1, out, number, ends):
    nisa.memset(dst=_operand(tiles, dst), value=number % 5)


def _dma(tiles, hbm, dst, a, b, c, s0, s1, out, number, ends):
    """Between tiles and parts of HBM tensors of as many elements, also from an HBM tensor to itself, shifted."""
    target, source = _operand(tiles, dst), _operand(tiles, a)
    n = target.size
    if ends[0] is not None:
        start = number % (P * F - n + 1)
        target = hbm[ends[0]].reshape((P * F,))[start : start + n]
    if ends[1] is not None:
        start = number // 7 % (P * F - n + 1)
        source = hbm[ends[1]].reshape((P * F,))[start : start + n]
    nisa.dma_copy(dst=target, src=source)


def _scan(tiles, hbm, dst, a, b, c, s0, s1, out, number, ends):
    nisa.tensor_tensor_scan(
        dst=_operand(tiles, dst),
        data0=_operand(tiles, a),
        data1=_operand(tiles, b),
        initial=_operand(tiles, s0),
        op0=(nl.maximum, nl.minimum)[number & 1],
        op1=(nl.minimum, nl.maximum)[number & 1],
    )


def _flip(tiles, hbm, dst, a, b, c, s0, s1, out, number, ends):
    start, other = number % (F - P), number // 8 % (F - P)
    data = tiles[a.tile].reshape((P, F))[:, start : start + P]
    nisa.nc_transpose(
        dst=tiles[dst.tile].reshape((P, F))[:, other : other + P], data=data, engine=nisa.engine.vector
    )


def _iota(tiles, hbm, dst, a, b, c, s0, s1, out, number, ends):
    target = _operand(tiles, dst)
    pattern = [[1, target.size // P]]
    if number & 1:
        nisa.iota(dst=target, pattern=pattern, offset=number % 3, channel_multiplier=1)
        return
    nisa.affine_select(
        dst=target,
        pattern=pattern,
        channel_multiplier=-1,
        on_true_tile=_operand(tiles, a),
        on_false_value=3.0,
        cmp_op=nl.greater_equal,
    )


STEPS = {
    "copy": _copy,
    "tt": _tt,
    "ts": _ts,
    "stt": _stt,
    "act": _act,
    "tsr": _tsr,
    "fold": _fold,
    "set": _set,
    "dma": _dma,
    "scan": _scan,
    "flip": _flip,
    "iota": _iota,
}
