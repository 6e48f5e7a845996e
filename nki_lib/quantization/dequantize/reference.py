"""What `dequantize` computes, in plain PyTorch: the meaning of the operator."""

from __future__ import annotations

import torch
from torch import Tensor

from nki_lib.quantization.formats import BLOCK, FORMATS
from nki_lib.quantization.tensors import element_type, scale_type

NIBBLE_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def dequantize(
    data: Tensor, scale: Tensor, format: str, dim: int = -1, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Elements times scales of the vectors along `dim`."""
    made = FORMATS[format]
    data, scale = data.movedim(dim, -1), scale.movedim(dim, -1).view(scale_type(made)).float()
    if made.element is None:
        bytes_of = data.contiguous().view(torch.uint8)
        codes = torch.stack([bytes_of & 15, bytes_of >> 4], -1).flatten(-2)
        table = torch.tensor(NIBBLE_VALUES, device=data.device)
        values = torch.cat([table, -table])[codes.long()]
    else:
        values = data.view(element_type(made)).float()
    if made.blocks:
        scale = scale.repeat_interleave(BLOCK, -1)
    return (values * scale).to(dtype).movedim(-1, dim)
