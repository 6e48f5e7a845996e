"""`torch.ops.nki_lib.qkv_projection`: the cases without work, and launches on rows.

`checks.py` says what it refuses, `gradients.py` registers its backward pass.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nki.torch import nki_op
from nki_lib.attention.qkv_projection.checks import check_arguments
from nki_lib.attention.qkv_projection.gradients import backward, setup_context
from nki_lib.attention.qkv_projection.kernel import qkv_projection as kernel
from nki_lib.attention.qkv_projection.reference import qkv_projection as reference
from nki_lib.attention.rope.op import table_rows
from nki_lib.common.rows import run_on_rows

SCHEMA = (
    "(Tensor x, Tensor weight, Tensor? bias=None, Tensor? norm_weight=None, Tensor? cos=None, Tensor? sin=None, *, "
    "int num_heads, int num_kv_heads, float eps=1e-06, bool interleaved=False) -> (Tensor, Tensor, Tensor)"
)
Heads = tuple[Tensor, Tensor, Tensor]


def _fake(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    norm_weight: Tensor | None = None,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    *,
    num_heads: int,
    num_kv_heads: int,
    eps: float = 1e-6,
    interleaved: bool = False,
) -> Heads:
    depth = check_arguments(x, weight, bias, norm_weight, cos, sin, num_heads, num_kv_heads, eps)
    batch, length, _ = x.shape
    q, k, v = (x.new_empty(batch, h, length, depth) for h in (num_heads, num_kv_heads, num_kv_heads))
    return q, k, v


@nki_op("nki_lib::qkv_projection", fake=_fake, schema=SCHEMA)
def qkv_projection(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    norm_weight: Tensor | None = None,
    cos: Tensor | None = None,
    sin: Tensor | None = None,
    *,
    num_heads: int,
    num_kv_heads: int,
    eps: float = 1e-6,
    interleaved: bool = False,
) -> Heads:
    """The operator behind `nki_lib.qkv_projection`, where the arguments are explained."""
    depth = check_arguments(x, weight, bias, norm_weight, cos, sin, num_heads, num_kv_heads, eps)
    if x.numel() == 0 or weight.numel() == 0:
        options = {"norm_weight": norm_weight, "eps": eps, "cos": cos, "sin": sin, "interleaved": interleaved}
        parts = reference(x, weight, bias, num_heads=num_heads, num_kv_heads=num_kv_heads, **options)
    else:
        batch, length, width = x.shape
        tables = [None if t is None else table_rows(t, batch) for t in (cos, sin)]
        constants = [None if t is None else t.contiguous() for t in (weight, bias, norm_weight)]
        rows = x.new_empty(batch * length, weight.shape[0])
        rotated = (num_heads + num_kv_heads) * depth
        inputs = [x.reshape(batch * length, width), *tables]
        run_on_rows(rows, kernel, inputs, *constants, eps, depth, rotated, interleaved)
        sides = rows.view(batch, length, -1, depth).transpose(1, 2)
        parts = sides.split((num_heads, num_kv_heads, num_kv_heads), 1)
    q, k, v = (part.to(x.dtype).clone(memory_format=torch.contiguous_format) for part in parts)
    return q, k, v


qkv_projection.register_autograd(backward, setup_context=setup_context)

OPERATOR = torch.ops.nki_lib.qkv_projection.default
"""What `nki_lib.qkv_projection` calls."""
