"""Sequences filled up with positions that change nothing, to one of a few lengths, so that few programs are staged."""

from __future__ import annotations

import torch
from torch import Tensor


def filled(tensor: Tensor | None, length: int, value: float = 0.0) -> Tensor | None:
    """The last axis filled up to `length`, each of its lines in one piece; the same tensor if it is like that.

    The DMA would fetch elements that lie apart one by one.
    """
    if tensor is None:
        return None
    missing = length - tensor.shape[-1]
    if missing:
        return torch.nn.functional.pad(tensor, (0, missing), value=value)
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()
