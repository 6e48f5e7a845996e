"""`nki_lib.rope`, the typed front door of the operator. Importable without PyTorch."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from nki import errors

if TYPE_CHECKING:
    from torch import Tensor

_HAS_TORCH = find_spec("torch") is not None

if _HAS_TORCH:
    from nki_lib.attention.rope.op import CHECKS, OPERATOR


def rope(x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool = False) -> Tensor:
    """Rotary position embedding: x cos + turned(x) sin, where turned makes (-b, a) of every pair (a, b) of a head.

    x: [B, H, S, D] of any strides, float32, bfloat16 or float16, D even.
    cos, sin: [S, D] or [B, S, D], or of half width, [S, D/2] or [B, S, D/2], where both members of a pair share an
    entry; of one dtype, which may be another than that of x. Row s belongs to position s of x, so a decoder passes
    the rows of its new positions.
    interleaved: False pairs (i, i + D/2), as Llama; True pairs (2i, 2i + 1), as GPT-J.

    Returns [B, H, S, D] in the dtype of x, contiguous, computed in float32 and rounded once.
    Works in eager mode, under `torch.compile(fullgraph=True)` and with autograd: x gets its gradient from the same
    kernel, cos and sin get theirs from PyTorch.
    Raises ShapeError, DtypeError or ArgumentError naming the argument; MissingExtraError without PyTorch.

    Example: nki_lib.rope(torch.randn(1, 8, 77, 64), angles.cos(), angles.sin())  # angles [77, 32]
    """
    if not _HAS_TORCH:
        raise errors.MissingExtraError(
            "nki_lib.rope needs PyTorch, which is not installed",
            remedy="pip install 'open-nki[torch]', or launch the kernel on NumPy arrays: "
            "nki_lib.attention.rope.kernel",
        )
    CHECKS.places(x=x, cos=cos, sin=sin)
    return OPERATOR(x, cos, sin, interleaved=interleaved)
