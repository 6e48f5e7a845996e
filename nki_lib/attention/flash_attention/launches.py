"""From tensors of a batch to launches of the kernels: one per batch element and key head, and what each is given.

All launches of a call, and of later calls with other batch sizes or head counts, run the same cached program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import nki.language as nl
from nki.torch import run_into
from nki_lib.attention.flash_attention.arguments import Extras
from nki_lib.attention.flash_attention.backward import flash_attention_backward as backward_kernel
from nki_lib.attention.flash_attention.kernel import flash_attention as forward_kernel

QUERY_SHARE = 0.625  # of SBUF, for what the backward kernel keeps of its queries
HIDDEN = -1.0  # the id of a key that no query has


@dataclass
class Slice:
    """What one launch works on: batch element b, key head h, some query heads and some queries."""

    b: int
    h: int
    heads: slice
    rows: slice


class Call:
    """A call made simple: scale > 0, one query is not causal, no window wider than the keys, queries that see a key.

    blind: the first queries, which see no key. sign: what q has been multiplied by to make the scale positive.
    """

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, extras: Extras) -> None:
        queries, keys = q.shape[2], k.shape[2]
        scale = q.shape[3] ** -0.5 if extras.scale is None else extras.scale
        self.sign = float((scale > 0) - (scale < 0))
        self.scale = abs(scale) or 1.0
        self.q, self.k, self.v = (q if self.sign == 1 else q * self.sign), k, v
        self.group = q.shape[1] // max(k.shape[1], 1)
        self.causal = extras.causal and queries > 1
        self.blind = max(queries - keys, 0) if self.causal else 0
        window = None if extras.window is None else int(extras.window)
        self.window = None if window is None or window >= max(queries, keys) else window
        self.softcap = extras.softcap
        self.sinks = None if extras.sinks is None else extras.sinks.detach().float().contiguous()
        bias = extras.bias
        self.bias = None if bias is None else bias.detach()[(None,) * (4 - bias.dim())]
        self.q_ids, self.k_ids = make_ids(queries, keys, extras)

    @property
    def empty(self) -> bool:
        """Nothing to launch."""
        return self.q.numel() == 0 or self.k.shape[2] == 0

    @property
    def rows_are_alike(self) -> bool:
        """The queries of all heads see the same keys: they are rows of one matrix."""
        apart = (self.window, self.sinks, self.bias, self.q_ids)
        return not self.causal and all(x is None for x in apart)

    def slices(self) -> Iterator[tuple[int, int, slice]]:
        """Batch elements and key heads, with the query heads of each."""
        for b in range(self.q.shape[0]):
            for h in range(self.k.shape[1]):
                yield b, h, slice(h * self.group, (h + 1) * self.group)

    def extras(self, b: int, heads: slice, rows: slice) -> dict[str, Any]:
        """The keyword arguments of a launch for these query heads and queries."""
        given: dict[str, Any] = {"window": self.window, "softcap": self.softcap}
        if self.bias is not None:
            given["bias"] = part_of_bias(self.bias, b, heads, rows)
        if self.q_ids is not None and self.k_ids is not None:
            given |= {"q_ids": self.q_ids[b, rows], "k_ids": self.k_ids[b]}
        return given


def part_of_bias(bias: Tensor, b: int, heads: slice, rows: slice) -> Tensor:
    """What these queries see of a bias of four dimensions, or of its gradient; those of size 1 stay whole."""
    bias = bias[b if bias.shape[0] > 1 else 0]
    bias = bias[heads] if bias.shape[0] > 1 else bias
    return bias[:, rows] if bias.shape[1] > 1 else bias


def make_ids(queries: int, keys: int, extras: Extras) -> tuple[Tensor | None, Tensor | None]:
    """Numbers [B, Sq] and [B, Sk] such that equal ones see each other, small enough to be exact in float32."""
    mask, q_ids, k_ids = extras.key_padding_mask, extras.q_segment_ids, extras.kv_segment_ids
    if q_ids is not None and k_ids is not None:
        joined = torch.cat((q_ids.long(), k_ids.long()), 1)
        joined = torch.unique(joined, return_inverse=True)[1].float()
        ours, theirs = joined[:, :queries].contiguous(), joined[:, queries:].contiguous()
    elif mask is not None:
        ours, theirs = (torch.zeros(mask.shape[0], n, dtype=torch.float32) for n in (queries, keys))
    else:
        return None, None
    return ours, theirs if mask is None else torch.where(mask, theirs, HIDDEN)


def forward(q: Tensor, k: Tensor, v: Tensor, extras: Extras, with_lse: bool) -> tuple[Tensor, Tensor | None]:
    """The attention, and the log sum exp of each query's scores if asked for."""
    call = Call(q, k, v, extras)
    out = q.new_empty(q.shape)
    lse = q.new_empty(q.shape[:3], dtype=torch.float32) if with_lse else None
    if call.empty or call.blind:
        out.zero_()
        if lse is not None:
            lse.copy_(call.sinks[:, None] if call.sinks is not None else torch.tensor(float("-inf")))
    if call.empty:
        return out, lse
    depth, rows = q.shape[3], slice(call.blind, q.shape[2])
    for b, h, heads in call.slices():
        queries, result = call.q[b, heads, rows], out[b, heads, rows]
        if call.rows_are_alike:
            queries, result = queries.reshape(1, -1, depth), result.view(1, -1, depth)
        given = call.extras(b, heads, rows)
        if call.sinks is not None:
            given["sinks"] = call.sinks[heads]
        arguments = (queries, k[b, h], v[b, h], call.scale, call.causal)
        if lse is None:
            run_into(result, forward_kernel, *arguments, **given)
        else:
            side = nl.tile_size.pmax
            tiles = -(-queries.shape[1] // side) * queries.shape[0]
            kept = lse.new_empty(tiles, side)
            run_into((result, kept), forward_kernel, *arguments, **given, return_lse=True)
            kept = kept.view(queries.shape[0], -1)[:, : queries.shape[1]]
            lse[b, heads, rows] = kept.reshape(call.group, -1)
    return out, lse


@dataclass
class Gradients:
    """What launches write into or add to. k, v and bias are sums in float32; bias has four dimensions."""

    q: Tensor
    k: Tensor
    v: Tensor
    bias: Tensor | None


def backward(
    grad: Tensor,
    grad_lse: Tensor | None,
    tensors: tuple[Tensor, ...],
    extras: Extras,
    with_bias: bool = False,
) -> tuple[Tensor, ...]:
    """dq, dk and dv, and the gradient of the bias if asked for. tensors: q, k, v, and the results of `forward`."""
    q, k, v, out, lse = tensors
    call = Call(q, k, v, extras)
    dk, dv = (torch.zeros(k.shape, dtype=torch.float32) for _ in range(2))
    dbias = torch.zeros(call.bias.shape, dtype=torch.float32) if with_bias and call.bias is not None else None
    sums = Gradients(q.new_zeros(q.shape), dk, dv, dbias)
    if not call.empty:
        for b, h, heads in call.slices():
            for mine, rows in pieces(call, heads):
                _differentiate(call, Slice(b, h, mine, rows), (out, grad, lse, grad_lse), sums)
    if call.sign != 1:
        sums.q *= call.sign
    results = sums.q, dk.to(k.dtype), dv.to(v.dtype)
    if dbias is None or extras.bias is None:
        return results
    return *results, dbias.view(extras.bias.shape).to(extras.bias.dtype)


def _differentiate(call: Call, part: Slice, tensors: tuple[Tensor | None, ...], sums: Gradients) -> None:
    """One launch: write its part of dq, add to dk, dv and, summed where the bias was repeated, to its gradient."""
    b, h, heads, rows = part.b, part.h, part.heads, part.rows
    out, grad, lse, grad_lse = (None if x is None else x[b, heads, rows] for x in tensors)
    q, depth, keys = call.q[b, heads, rows], call.q.shape[3], call.k[b, h]
    assert out is not None and grad is not None and lse is not None
    first = keys.shape[0] - call.q.shape[2] + rows.start
    if call.rows_are_alike:
        q, out, grad = (x.reshape(1, -1, depth) for x in (q, out, grad))
        lse, grad_lse = (None if x is None else x.reshape(1, -1) for x in (lse, grad_lse))
        first = 0
    results = [q.new_empty(q.shape), *(torch.empty(keys.shape, dtype=torch.float32) for _ in range(2))]
    given = call.extras(b, heads, rows) | {"grad_lse": grad_lse}
    if sums.bias is not None:
        results.append(torch.empty(*q.shape[:2], keys.shape[0], dtype=torch.float32))
        given["bias_gradient"] = True
    arguments = (q, keys, call.v[b, h], out, grad, lse, call.scale, call.causal, first)
    run_into(results, backward_kernel, *arguments, **given)
    dq, dk, dv, *dbias = results
    sums.q[b, heads, rows] = dq.view(sums.q[b, heads, rows].shape)
    sums.k[b, h] += dk
    sums.v[b, h] += dv
    if sums.bias is not None:
        mine = part_of_bias(sums.bias, b, heads, rows)
        mine += dbias[0].sum_to_size(mine.shape)


def pieces(call: Call, heads: slice) -> Iterator[tuple[slice, slice]]:
    """Query heads and queries of launches that fit into SBUF: all, else some heads, else some queries of one."""
    side, depth, size = nl.tile_size.pmax, call.q.shape[3], call.q.element_size()
    per_tile = 2 * size * (depth + side * -(-depth // side)) + 4 * depth
    tiles = max(int(nl.tile_size.sbuf_fmax_bytes * QUERY_SHARE) // per_tile, 1)
    stop = call.q.shape[2]
    of_head = -(-(stop - call.blind) // side)
    step = tiles // of_head or 1
    for head in range(heads.start, heads.stop, step):
        mine = slice(head, min(head + step, heads.stop))
        for start in range(call.blind, stop, tiles * side if of_head > tiles else stop):
            yield mine, slice(start, min(start + tiles * side, stop) if of_head > tiles else stop)
