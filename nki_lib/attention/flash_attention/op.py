"""`torch.ops.nki_lib.flash_attention`: checks, the cases without work, and one launch per batch element and key head.

All launches of a call, and of later calls with other batch sizes or head counts, run the same cached program.
"""

from __future__ import annotations

import torch
from torch import Tensor

import nki.language as nl
from nki import errors
from nki.torch import nki_op, run_into
from nki_lib.attention.flash_attention.kernel import flash_attention as kernel

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
DEVICES = ("cpu", "meta")


def _fake(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None) -> Tensor:
    check_arguments(q, k, v)
    return q.new_empty(q.shape)


@nki_op(
    "nki_lib::flash_attention",
    fake=_fake,
    schema="(Tensor q, Tensor k, Tensor v, *, bool causal=False, float? scale=None) -> Tensor",
)
def flash_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None
) -> Tensor:
    """The operator behind `nki_lib.flash_attention`, where the arguments are explained."""
    check_arguments(q, k, v)
    batch, heads, queries, depth = q.shape
    key_heads, keys = k.shape[1:3]
    out = q.new_empty(q.shape)
    blind = max(queries - keys, 0) if causal else 0  # the first queries see no key
    if q.numel() == 0 or keys == 0 or blind:
        out.zero_()
    if q.numel() == 0 or keys == 0:
        return out
    scale = depth**-0.5 if scale is None else scale
    causal = causal and queries > 1  # a single query sees all keys
    group = heads // key_heads
    for b in range(batch):
        for h in range(key_heads):
            mine = slice(h * group, (h + 1) * group)
            queries_in, rows_out = q[b, mine, blind:], out[b, mine, blind:]
            if not causal:  # the queries of all heads see the same keys: rows of one matrix
                queries_in, rows_out = queries_in.reshape(1, -1, depth), rows_out.view(1, -1, depth)
            run_into(rows_out, kernel, queries_in, k[b, h], v[b, h], scale, causal)
    return out


def check_arguments(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Raise for what cannot be computed, naming the argument."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.dim() != 4:
            raise _error(
                errors.ShapeError, name, tensor, "4 dimensions, [batch, heads, length, head dimension]"
            )
        if tensor.dtype not in DTYPES:
            raise _error(errors.DtypeError, name, tensor, "float32, bfloat16 or float16", "cast it first")
        if tensor.device.type not in DEVICES:
            remedy = f"move it first: {name}.cpu()"
            raise _error(errors.ArgumentError, name, tensor, "a tensor on the CPU", remedy)
        if tensor.dtype != q.dtype:
            raise _error(errors.DtypeError, name, tensor, f"{q.dtype}, as q", f"cast it: {name}.to(q.dtype)")
        if tensor.shape[0] != q.shape[0] or tensor.shape[3] != q.shape[3]:
            allowed = f"batch {q.shape[0]} and head dimension {q.shape[3]}, as q"
            raise _error(errors.ShapeError, name, tensor, allowed)
    if k.shape != v.shape:
        raise _error(errors.ShapeError, "v", v, f"shape {list(k.shape)}, as k")
    if k.shape[1] != q.shape[1] and (k.shape[1] == 0 or q.shape[1] % k.shape[1] != 0):
        allowed = f"a number of heads that divides the {q.shape[1]} of q"
        raise _error(
            errors.ShapeError, "k", k, allowed, "pass k and v with one head per group of query heads"
        )
    if q.shape[3] > nl.tile_size.pmax:
        remedy = "split the heads: the head dimension lies on the partitions"
        raise _error(errors.ShapeError, "q", q, f"a head dimension of at most {nl.tile_size.pmax}", remedy)


def _error(
    kind: type[errors.NkiError], name: str, tensor: Tensor, allowed: str, remedy: str | None = None
) -> errors.NkiError:
    found = f"{tensor.dtype} of shape {list(tensor.shape)} on {tensor.device}"
    return kind(
        f"flash_attention: cannot take this `{name}`",
        operand=name,
        found=found,
        allowed=allowed,
        remedy=remedy,
    )


OPERATOR = torch.ops.nki_lib.flash_attention.default
"""What `nki_lib.flash_attention` calls."""
