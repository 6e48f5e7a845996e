"""NKI kernels as PyTorch operators: typed front doors here, `torch.ops.nki_lib.*` behind them.

Each family has a folder, each operator one inside it: `kernel.py` (NKI), `reference.py` (plain PyTorch, the oracle),
`op.py` (the operator), `api.py` (the front door). The kernels can be used without PyTorch; the front doors need it.
"""

from __future__ import annotations

from nki_lib import hf
from nki_lib.attention.flash_attention.api import flash_attention
from nki_lib.attention.flash_decode.api import flash_decode
from nki_lib.attention.flex_attention.api import flex_attention
from nki_lib.attention.output_projection.api import output_projection
from nki_lib.attention.qkv_projection.api import qkv_projection
from nki_lib.attention.rope.api import rope
from nki_lib.linear.matmul.api import matmul
from nki_lib.linear.matmul_mx.api import matmul_mx
from nki_lib.linear.mlp.api import mlp
from nki_lib.lookup.embedding.api import embedding
from nki_lib.loss.cross_entropy.api import cross_entropy
from nki_lib.loss.linear_cross_entropy.api import linear_cross_entropy
from nki_lib.moe.moe_decode.api import moe_decode
from nki_lib.moe.moe_prefill.api import moe_prefill
from nki_lib.moe.router_topk.api import router_topk
from nki_lib.norm.layer_norm.api import layer_norm
from nki_lib.norm.rms_norm.api import rms_norm
from nki_lib.optimizer.adamw.api import AdamW, adamw
from nki_lib.quantization.dequantize.api import dequantize
from nki_lib.quantization.quantize.api import quantize
from nki_lib.reduction.cumsum.api import cumsum
from nki_lib.reduction.softmax.api import softmax
from nki_lib.reduction.topk.api import topk
from nki_lib.sequence.depthwise_conv1d.api import depthwise_conv1d
from nki_lib.sequence.selective_scan.api import selective_scan

__all__ = [
    "AdamW",
    "adamw",
    "cross_entropy",
    "cumsum",
    "depthwise_conv1d",
    "dequantize",
    "embedding",
    "flash_attention",
    "flash_decode",
    "flex_attention",
    "hf",
    "layer_norm",
    "linear_cross_entropy",
    "matmul",
    "matmul_mx",
    "mlp",
    "moe_decode",
    "moe_prefill",
    "output_projection",
    "qkv_projection",
    "quantize",
    "rms_norm",
    "rope",
    "router_topk",
    "selective_scan",
    "softmax",
    "topk",
]
