"""Linear layers whose weights torchao has quantised: `linear` for one product, `use_kernels` for a model.

torchao keeps a quantised weight as a tensor subclass. Two of them are read here, by their attributes, so that nothing
of torchao is imported: `Float8Tensor` (elements `qdata` [N, K] of float8, `scale` [N, 1] or [1, 1]) and `MXTensor`
(`qdata` [N, K] of float8 or [N, K / 2] bytes of two, `scale` [N, K / 32], or those in the blocks of 32 x 16 that
another vendor's hardware wants, which are put in order once).

What happens to the activations is what the weight says (`act_quant_kwargs`): they are quantised when they come, to the
same kind of format, or they stay as they are and the weight is widened.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from nki import errors
from nki_lib.common.arguments import DTYPES, FLOAT8, Checks, autocast
from nki_lib.common.rows import as_rows, name_of
from nki_lib.linear.matmul.api import matmul
from nki_lib.linear.matmul_mx.api import matmul_mx
from nki_lib.quantization.dequantize.api import dequantize
from nki_lib.quantization.formats import BLOCK
from nki_lib.quantization.quantize.api import quantize

CHECKS = Checks("torchao_weights.linear")
SCALE_ROWS, SCALE_COLUMNS = 128, 4
"""Of a block of scales in another order: 4 groups of 32 rows stand side by side in it."""

NIBBLES = "mxfp4_e2m1"


@dataclass(frozen=True)
class Weight:
    """A quantised weight as our kernels take it.

    data: [N, E]. scale: [N, K / 32] of an MX format, else float32 [N, 1]. activations: what they are quantised to: a
    type of elements, or None. whole: whether one scale serves all of the activations, not each row.
    """

    data: Tensor
    scale: Tensor
    activations: torch.dtype | None
    whole: bool

    @property
    def blocks(self) -> bool:
        """Whether the format is MX."""
        return self.scale.dtype == torch.float8_e8m0fnu

    @property
    def depth(self) -> int:
        """K."""
        return self.scale.shape[1] * BLOCK if self.blocks else self.data.shape[1]


def read(weight: Tensor) -> Weight | None:
    """The parts of a torchao weight; None if it is none, or one that our kernels do not take."""
    kind = type(weight)
    readers = {"MXTensor": _read_blocks, "Float8Tensor": _read_float8}
    if kind.__name__ not in readers or not kind.__module__.startswith("torchao.") or weight.dim() != 2:
        return None
    return readers[kind.__name__](weight)


def _read_blocks(weight: Any) -> Weight | None:
    data, scale, depth = weight.qdata, weight.scale, weight.shape[1]
    if weight.block_size != BLOCK or data.dtype not in (*FLOAT8, torch.uint8) or depth % BLOCK:
        return None
    if data.dtype == torch.uint8 and data.shape[1] * 2 != depth:  # elements of six bits
        return None
    if weight.is_swizzled_scales:
        scale = in_order(scale, weight.shape[0], depth // BLOCK)
    asked = weight.act_quant_kwargs
    return Weight(data, scale, None if asked is None else asked.elem_dtype, False)


def _read_float8(weight: Any) -> Weight | None:
    data, scale, asked = weight.qdata, weight.scale, weight.act_quant_kwargs
    if data.dtype not in FLOAT8 or not (scale.numel() == 1 or scale.shape == (data.shape[0], 1)):
        return None
    column = scale.float().reshape(-1, 1).expand(data.shape[0], 1)
    if asked is None:
        return Weight(data, column, None, False)
    granularity = type(asked.granularity).__name__
    if granularity not in ("PerRow", "PerTensor") or asked.hp_value_lb or asked.hp_value_ub:
        return None
    return Weight(data, column, asked.float8_dtype, granularity == "PerTensor")


def in_order(scale: Tensor, rows: int, columns: int) -> Tensor:
    """Scales [rows, columns] from blocks of 128 x 4, each stored as 32 x 16: a copy."""
    down, across = -(-rows // SCALE_ROWS), -(-columns // SCALE_COLUMNS)
    blocks = scale.view(torch.uint8).reshape(down, across, SCALE_ROWS // 4, 4, SCALE_COLUMNS)
    tiles = blocks.permute(0, 3, 2, 1, 4).reshape(down * SCALE_ROWS, across * SCALE_COLUMNS)
    return tiles[:rows, :columns].contiguous().view(torch.float8_e8m0fnu)


def linear(x: Tensor, weight: Tensor | Weight, bias: Tensor | None = None) -> Tensor:
    """x weight^T + bias, as torch.nn.functional.linear, for a weight that torchao has quantised.

    x: [..., K] in float32, bfloat16 or float16. weight: [N, K], a `Float8Tensor` with a scale for each row or for all,
    or an `MXTensor` of blocks of 32, or what `read` made of it. bias: [N] of a float type.

    Returns [..., N] of the type of x. MX activations take their scales from `nisa.quantize_mx`, whatever rule torchao
    uses on other hardware (`scaling_mode`). Under `torch.autocast` x and bias are cast.
    Raises ArgumentError for another weight; ShapeError, DtypeError or ArgumentError naming the argument.

    Example: y = linear(x, model.lm_head.weight)  # after torchao.quantization.quantize_(model, config)
    """
    known = weight if isinstance(weight, Weight) else read(weight)
    if known is None:
        allowed = "a torchao Float8Tensor with scales of rows, or MXTensor with blocks of 32"
        raise CHECKS.error(errors.ArgumentError, "weight", type(weight).__name__, allowed)
    check_input(x, known, bias)
    x, bias = autocast(x, bias)
    compute = _of_blocks if known.blocks else _of_vectors
    if known.activations is None:
        compute = _weight_only
    return compute(as_rows(x), known, bias).view(*x.shape[:-1], known.data.shape[0])


def check_input(x: Tensor, weight: Weight, bias: Tensor | None) -> None:
    """What is multiplied; the kernels would call it by other names."""
    CHECKS.required(x=x)
    CHECKS.places(x=x, weight=weight.data, bias=bias)
    if x.dtype not in DTYPES:
        raise CHECKS.error(errors.DtypeError, "x", x, "float32, bfloat16 or float16", "cast it first")
    if x.dim() == 0 or x.shape[-1] != weight.depth:
        allowed = f"{weight.depth} values in its last axis, as many as the weight has columns"
        raise CHECKS.error(errors.ShapeError, "x", x, allowed)


def _weight_only(x: Tensor, weight: Weight, bias: Tensor | None) -> Tensor:
    """float8 weights are multiplied as they are, microscaled ones are widened to the type of x."""
    if weight.blocks:
        return matmul(x, dequantize(weight.data, weight.scale, dtype=x.dtype).mT, bias=bias)
    return matmul(x, weight.data.mT, bias=bias, b_scale=weight.scale.mT)


def _of_blocks(x: Tensor, weight: Weight, bias: Tensor | None) -> Tensor:
    """MX activations times an MX weight."""
    factor = weight.data.mT, weight.scale.mT
    if weight.activations in FLOAT8:
        name = "mxfp8_e4m3" if weight.activations == torch.float8_e4m3fn else "mxfp8_e5m2"
        return matmul_mx(x, *factor, bias=bias, a_format=name)
    data, scale = quantize(x, NIBBLES)
    return matmul_mx(data, *factor, a_scale=scale, bias=bias, dtype=x.dtype)


def _of_vectors(x: Tensor, weight: Weight, bias: Tensor | None) -> Tensor:
    """float8 activations times a float8 weight."""
    name = name_of(weight.activations)
    data, scale = quantize(with_largest(x) if weight.whole else x, name)
    scales = {"a_scale": scale, "b_scale": weight.scale.mT}
    return matmul(data[:, : x.shape[1]], weight.data.mT, bias=bias, out_dtype=x.dtype, **scales)


def with_largest(x: Tensor) -> Tensor:
    """x with one more column that holds its largest magnitude, so that all rows get the same scale.

    As one long row they would get it too, but each number of rows would be another program.
    Dimensions: [R, K] -> [R, K + 1].
    """
    wide = functional.pad(x, (0, 1, 0, 1))  # one more row too, as there is no largest of nothing
    wide[:, -1] = wide.abs().amax()
    return wide[:-1]


def state_of(weight: Any) -> list[Any] | None:
    """What changes when a weight, or a part of it, is replaced or written to; None where PyTorch does not count that.

    Its parts alone would not tell: writes through the weight are counted at the weight.
    """
    parts = weight.qdata, weight.scale
    if torch.compiler.is_compiling() or any(part.is_inference() for part in (weight, *parts)):
        return None
    return [(id(part), part._version) for part in (weight, *parts)] + [part.data_ptr() for part in parts]


def forward_of(module: nn.Module) -> Callable[[nn.Module, Tensor], Tensor] | None:
    """A forward for a linear layer with a torchao weight that our kernels take, else None."""
    if getattr(type(module), "forward", None) is not nn.Linear.forward or read(module.weight) is None:
        return None
    held: list[Any] = [None, None, None]

    def forward(self: nn.Module, x: Tensor) -> Tensor:
        state = state_of(self.weight)
        if state is None:
            return linear(x, self.weight, self.bias)
        # Not read for every call, as scales may have to be put in order. The parts are held: no others get their ids.
        if held[0] != state:
            held[:] = state, read(self.weight), (self.weight, self.weight.qdata, self.weight.scale)
        return linear(x, held[1], self.bias)

    return forward


def use_kernels(model: nn.Module) -> list[str]:
    """Let every linear layer of `model` whose weight torchao has quantised run our kernels; the names of those that do.

    Weights, names and classes stay; only `forward` is another. `del module.forward` takes it back. For models of
    Transformers `nki_lib.hf.use_kernels` does this too.

    Example:
        torchao.quantization.quantize_(model, MXDynamicActivationMXWeightConfig())
        nki_lib.quantization.torchao_weights.use_kernels(model)
    """
    names = []
    for name, module in model.named_modules():
        forward = forward_of(module)
        if forward is not None:
            module.forward = MethodType(forward, module)
            names.append(name)
    return names
