"""Linear layers quantised by torchao on our kernels, against what torchao's own weights dequantise to."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of a compiled part that is not there
    pytest.importorskip("torchao")

from torch import Tensor, nn  # noqa: E402
from torchao import quantization as ao  # noqa: E402
from torchao.prototype.mx_formats import MXDynamicActivationMXWeightConfig  # noqa: E402
from torchao.prototype.mx_formats.mx_tensor import MXTensor, QuantizeTensorToMXKwargs  # noqa: E402
from torchao.quantization import Float8Tensor  # noqa: E402
from torchao.quantization.quantize_.workflows.float8.float8_tensor import (  # noqa: E402
    QuantizeTensorToFloat8Kwargs,
)

from nki import errors  # noqa: E402
from nki_lib.quantization.torchao_weights import forward_of, linear, read, use_kernels  # noqa: E402
from tests.nki_lib.format_bounds import product_error, stored  # noqa: E402
from tests.nki_lib.narrow_formats import E4M3, quantized_vectors  # noqa: E402

ELEMENTS = {"mxfp8": torch.float8_e4m3fn, "mxfp4": torch.float4_e2m1fn_x2}
LOST = {"mxfp8": 2.0**-4, "mxfp4": 2.0**-2}
"""Of a value of a block whose scale is rounded to a power of two: half a step, and clamping."""


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).bfloat16()


def layer(rows: int = 200, depth: int = 160) -> nn.Linear:
    made = nn.Linear(depth, rows).bfloat16().requires_grad_(False)
    made.weight.copy_(random(rows, depth))
    return made


def near(found: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    """Whether found is x weight^T + bias, all in float64, but for the error of a product in float32 and its rounding.

    A scale may be applied after the sum and rounds once more, which the 4 u of `product_error` include.
    """
    shift = torch.zeros(()) if bias is None else bias.double()
    exact, magnitude = x @ weight.mT + shift, x.abs() @ weight.abs().mT + shift.abs()
    bound = stored(exact, product_error(x.shape[-1], magnitude), torch.bfloat16)
    return bool(((found.double() - exact).abs() <= bound).all())


def close(found: Tensor, x: Tensor, module: Any, lost: float) -> bool:
    """Whether found is x weight^T + bias but for `lost` of every activation, and the rounding of the result.

    What is lost of the activations of a row is as good as independent: four standard deviations of their sum.
    """
    weight = module.weight.dequantize(torch.float64)
    exact = x.double() @ weight.mT + module.bias.double()
    spread = (x.double().square() @ weight.mT.square()).sqrt()
    error = 4 * lost * spread + product_error(x.shape[-1], x.double().abs() @ weight.mT.abs())
    return bool(((found.double() - exact).abs() <= stored(exact, error, torch.bfloat16)).all())


@pytest.mark.parametrize("kind", ELEMENTS)
def test_mx_config(kind: str) -> None:
    """What `quantize_` makes: weights with scales in the blocks of other hardware, which no CPU kernel takes."""
    model = nn.Sequential(layer(), nn.Tanh(), layer(96, 200))
    model[2].weight = nn.Parameter(model[2].weight[:, :192].clone(), requires_grad=False)
    element = ELEMENTS[kind]
    config = MXDynamicActivationMXWeightConfig(activation_dtype=element, weight_dtype=element)
    ao.quantize_(model, config)
    assert use_kernels(model) == ["0", "2"]
    x = random(2, 3, 160)
    found = model[0](x)
    assert found.shape == (2, 3, 200) and found.dtype == torch.bfloat16
    assert close(found, x, model[0], LOST[kind])
    assert close(model[2](random(5, 192)), random(5, 192), model[2], LOST[kind])
    assert torch.equal(found, linear(x, model[0].weight, model[0].bias))


@pytest.mark.parametrize("element", [torch.float8_e4m3fn, torch.float8_e5m2, torch.float4_e2m1fn_x2])
@pytest.mark.parametrize("dynamic", [True, False])
def test_mx_tensors(element: Any, dynamic: bool) -> None:
    asked = QuantizeTensorToMXKwargs(elem_dtype=element) if dynamic else None
    module = layer()
    weight = MXTensor.to_mx(module.weight.detach(), element, act_quant_kwargs=asked)
    module.weight = nn.Parameter(weight, requires_grad=False)
    x = random(5, 160)
    found = linear(x, module.weight)
    if dynamic:
        lost = {torch.float8_e4m3fn: 2.0**-4, torch.float8_e5m2: 2.0**-3}.get(element, 2.0**-2)
        assert close(linear(x, module.weight, module.bias), x, module, lost)
    else:
        assert near(found, x.double(), weight.dequantize().double())
    assert torch.equal(linear(x, read(weight)), found)


def test_float8_weight_only() -> None:
    module = layer()
    ao.quantize_(module, ao.Float8WeightOnlyConfig())
    x = random(2, 3, 160)
    theirs = module(x)
    assert use_kernels(module) == [""]
    assert near(module(x), x.double(), module.weight.dequantize(torch.float64), module.bias)
    del module.forward
    assert torch.equal(module(x), theirs)


@pytest.mark.parametrize("granularity", [ao.PerRow(), ao.PerTensor()])
@pytest.mark.parametrize("depth", [160, 150])
def test_float8_dynamic_activations(granularity: Any, depth: int) -> None:
    """Also of a depth that is not whole blocks of 32."""
    module = layer(40, depth)
    asked = QuantizeTensorToFloat8Kwargs(granularity=granularity)
    weight = Float8Tensor.from_hp(module.weight.detach(), granularity=granularity, act_quant_kwargs=asked)
    module.weight = nn.Parameter(weight, requires_grad=False)
    x = random(2, 3, depth)
    rows = x.flatten(0, 1).float() if isinstance(granularity, ao.PerRow) else x.reshape(1, -1).float()
    codes, scale = quantized_vectors(rows.numpy(), E4M3)
    rounded = torch.from_numpy(E4M3.table()[codes] * scale).reshape(6, depth)
    found = linear(x, module.weight, module.bias)
    assert found.dtype == torch.bfloat16 and found.shape == (2, 3, 40)
    assert near(found.flatten(0, 1), rounded.double(), weight.dequantize(torch.float64), module.bias)
    assert close(found, x, module, 2.0**-4)


def test_what_is_left_alone() -> None:
    plain = layer()
    assert forward_of(plain) is None and forward_of(nn.Tanh()) is None and read(plain.weight) is None
    blocks = MXTensor.to_mx(plain.weight.detach(), torch.float8_e4m3fn, block_size=16)
    assert read(blocks) is None
    with pytest.raises(errors.ArgumentError, match="`weight`"):
        linear(random(3, 160), plain.weight)
    assert use_kernels(nn.Sequential(plain)) == []
