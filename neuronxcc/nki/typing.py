"""Annotations of kernel parameters: those of `nki.typing`."""

from __future__ import annotations

from nki.typing import mutable_tensor, tensor

__all__ = ["mutable_tensor", "tensor"]
