"""What `matmul_mx` computes, in plain PyTorch: dequantise and multiply. In float64 it is the truth."""

from __future__ import annotations

import torch
from torch import Tensor

from nki_lib.quantization.dequantize.reference import dequantize
from nki_lib.quantization.formats import BLOCK, FORMATS


def matmul_mx(
    a: Tensor,
    b: Tensor,
    b_scale: Tensor,
    a_scale: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    a_format: str,
    b_format: str,
    dtype: torch.dtype,
) -> Tensor:
    """a b + bias. Dimensions: a [..., E], a_scale [..., G], b [E, N], b_scale [G, N], bias [N] -> [..., N]."""
    left = rounded(a, a_format) if a_scale is None else dequantize(a, a_scale, a_format, dtype=dtype)
    result = left.to(dtype) @ dequantize(b, b_scale, b_format, 0, dtype)
    return result if bias is None else result + bias


def rounded(x: Tensor, format: str) -> Tensor:
    """Values as float8 elements hold them whose scale is 2^(floor(log2 m) - exponent + 1), as `nisa.quantize_mx`.

    That is twice the scale of `nki_lib.quantize`: the largest value of a block is never clamped. float32 is rounded to
    bfloat16 first.
    """
    made = FORMATS[format]
    x = x.to(torch.bfloat16).float() if x.dtype == torch.float32 else x.float()
    blocks = x.unflatten(-1, (-1, BLOCK))
    most = blocks.abs().amax(-1, keepdim=True)
    power = (torch.frexp(most).exponent - made.exponent).clamp(min=-127)
    elements = torch.ldexp(blocks, -power).to(getattr(torch, made.element)).float()
    values = torch.where(most.isfinite(), torch.ldexp(elements, power), torch.nan)
    return values.flatten(-2)
