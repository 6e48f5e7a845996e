"""What `quantize` computes, in plain PyTorch: the meaning of the operator, and its results without work."""

from __future__ import annotations

import torch
from torch import Tensor

from nki_lib.quantization.formats import BLOCK, FORMATS, SCALE_BIAS, SCALE_NAN, Format
from nki_lib.quantization.tensors import NIBBLES, element_type

SMALLEST_NORMAL = torch.finfo(torch.float32).tiny


def quantize(x: Tensor, format: str, dim: int = -1) -> tuple[Tensor, Tensor]:
    """Elements and scales of the vectors along `dim`, as `nki_lib.quantize` returns them."""
    made, values = FORMATS[format], x.movedim(dim, -1).float()
    data, scale = (of_blocks if made.blocks else of_vectors)(values, made)
    return data.movedim(-1, dim), scale.movedim(-1, dim)


def of_vectors(x: Tensor, made: Format) -> tuple[Tensor, Tensor]:
    """float32 scales of the last axis."""
    most = x.new_zeros(*x.shape[:-1], 1) if x.shape[-1] == 0 else x.abs().amax(-1, keepdim=True)
    scale = most * (1 / made.largest)
    scale = torch.where(scale < SMALLEST_NORMAL, 1.0, scale)
    elements = (x * (1 / scale)).clamp(-made.largest, made.largest)
    return elements.to(element_type(made)), scale


def of_blocks(x: Tensor, made: Format) -> tuple[Tensor, Tensor]:
    """Powers of two as scales of blocks of 32."""
    blocks = x.unflatten(-1, (-1, BLOCK))
    most = blocks.abs().amax(-1, keepdim=True)
    exponent = torch.frexp(most).exponent - 1 - made.exponent
    code = torch.where(most == 0, 0, (exponent + SCALE_BIAS).clamp(0, SCALE_NAN - 1))
    code = torch.where(most.isfinite(), code, SCALE_NAN)
    scaled = torch.where(most.isfinite(), torch.ldexp(blocks, SCALE_BIAS - code), torch.nan)
    scaled = scaled.clamp(-made.largest, made.largest).flatten(-2)
    data = nibbles(scaled) if made.element is None else scaled.to(element_type(made))
    return data, code.squeeze(-1).to(torch.uint8).view(torch.float8_e8m0fnu)


def nibbles(values: Tensor) -> Tensor:
    """Values up to 6 as 4-bit elements, two to a byte; NaN as 0 with its sign."""
    size = values.abs()
    code = torch.minimum((2 * size).round(), torch.minimum(size.round() + 2, (size / 2).round() + 4))
    code = code.nan_to_num(0).to(torch.uint8) | values.signbit().to(torch.uint8) << 3
    return (code[..., 0::2] | code[..., 1::2] << 4).view(NIBBLES)
