"""NKI kernels as PyTorch operators: typed front doors here, `torch.ops.nki_lib.*` behind them.

Each family has a folder, each operator one inside it: `kernel.py` (NKI), `reference.py` (plain PyTorch, the oracle),
`op.py` (the operator). The kernels can be used without PyTorch; the front doors need it.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from nki import errors

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["flash_attention"]

_HAS_TORCH = find_spec("torch") is not None

if _HAS_TORCH:
    from nki_lib.attention.flash_attention.op import OPERATOR as _flash_attention


def flash_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None
) -> Tensor:
    """softmax(scale * q k^T) v, computed tile by tile on the NeuronCore that `nki` interprets.

    q: [B, Hq, Sq, D]; k, v: [B, Hkv, Sk, D] with Hq a multiple of Hkv and D <= 128; all float32, bfloat16 or float16,
    of any strides. Statistics are float32. The result has the shape and dtype of q and is contiguous.
    causal: query i sees the keys j <= i + Sk - Sq, so that the last query sees all; a query without keys gets zeros.
    scale: 1/sqrt(D) by default.

    Works in eager mode and under `torch.compile(fullgraph=True)`; there is no gradient yet.
    Example: nki_lib.flash_attention(torch.randn(1, 8, 77, 64), torch.randn(1, 2, 77, 64), torch.randn(1, 2, 77, 64))
    """
    if not _HAS_TORCH:
        raise errors.MissingExtraError(
            "nki_lib.flash_attention needs PyTorch, which is not installed",
            remedy="pip install 'open-nki[torch]', or launch the kernel on NumPy arrays: "
            "nki_lib.attention.flash_attention.kernel",
        )
    return _flash_attention(q, k, v, causal=causal, scale=scale)
