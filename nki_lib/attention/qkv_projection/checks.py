"""What the QKV projection refuses, with the argument named."""

from __future__ import annotations

from torch import Tensor

import nki.language as nl
from nki import errors
from nki_lib.attention.checks import AttentionChecks

CHECKS = AttentionChecks("qkv_projection")


def check_arguments(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    norm_weight: Tensor | None,
    cos: Tensor | None,
    sin: Tensor | None,
    num_heads: int,
    num_kv_heads: int,
    eps: float,
) -> int:
    """Raise for what cannot be computed; return the head dimension."""
    CHECKS.tensor("x", x, "batch, length, width")
    CHECKS.tensor("weight", weight, "all heads, width", like=x)
    depth = head_dimension(weight, num_heads, num_kv_heads)
    width = x.shape[2]
    if weight.shape[1] != width:
        allowed = f"{width} columns, the width of x"
        raise CHECKS.error(
            errors.ShapeError, "weight", weight, allowed, "pass it as torch.nn.Linear keeps it"
        )
    if bias is not None:
        CHECKS.tensor("bias", bias, "all heads", like=x)
        CHECKS.shape("bias", bias, (weight.shape[0],), "one for each row of weight")
    if norm_weight is not None:
        CHECKS.tensor("norm_weight", norm_weight, "width")
        CHECKS.shape("norm_weight", norm_weight, (width,), "one for each column of x")
    CHECKS.number("eps", eps, optional=False)
    if eps < 0:
        raise CHECKS.error(errors.ArgumentError, "eps", eps, "0 or more")
    check_rotation(x, cos, sin, depth)
    return depth


def head_dimension(weight: Tensor, num_heads: int, num_kv_heads: int) -> int:
    """D, from the rows of weight."""
    for name, count in (("num_heads", num_heads), ("num_kv_heads", num_kv_heads)):
        if count < 1:
            raise CHECKS.error(errors.ArgumentError, name, count, "at least 1")
    heads = num_heads + 2 * num_kv_heads
    if weight.shape[0] % heads:
        allowed = f"a multiple of {heads} rows: {num_heads} heads of q, {num_kv_heads} each of k and v"
        raise CHECKS.error(errors.ShapeError, "weight", weight, allowed, "check num_heads and num_kv_heads")
    return weight.shape[0] // heads


def check_rotation(x: Tensor, cos: Tensor | None, sin: Tensor | None, depth: int) -> None:
    """The tables: both or none, and heads that fit one bank of PSUM."""
    if cos is None and sin is None:
        return
    if cos is None or sin is None:
        name, other = ("cos", "sin") if cos is None else ("sin", "cos")
        raise CHECKS.error(errors.ArgumentError, name, "None", f"a table like {other}, or None for both")
    CHECKS.rotation(cos, sin, x.shape[0], x.shape[1], depth)
    if depth > nl.tile_size.psum_bank_fmax:
        allowed = f"a head dimension of at most {nl.tile_size.psum_bank_fmax} to be rotated"
        remedy = "leave cos and sin out and call nki_lib.rope on q and k"
        raise CHECKS.error(errors.ShapeError, "cos", f"head dimension {depth}", allowed, remedy)
