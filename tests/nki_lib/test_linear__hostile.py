"""What products, norms and narrow formats do where callers are careless: each of these once went wrong."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

import nki_lib  # noqa: E402
from nki import errors  # noqa: E402
from nki_lib.linear.matmul.fused import matmul_fused  # noqa: E402
from nki_lib.linear.matmul.kernel import matmul as matmul_kernel  # noqa: E402
from nki_lib.quantization.quantize.kernel import quantize_vectors  # noqa: E402
from nki_lib.quantization.torchao_weights import Weight, linear  # noqa: E402

E4, E8 = torch.float8_e4m3fn, torch.float8_e8m0fnu


def random(*shape: int, dtype: Any = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float32).to(
        dtype
    )


def leaf(*shape: int) -> Tensor:
    return random(*shape).requires_grad_()


NARROW, ONES = random(5, 64, dtype=E4), torch.ones(5, 2).to(E8)


def mx(x: Tensor, **options: Any) -> Tensor:
    return nki_lib.matmul_mx(x, NARROW.mT, ONES.mT, **options)


WEIGHTS = {
    "rows": Weight(NARROW, torch.ones(5, 1), E4, False),
    "whole": Weight(NARROW, torch.ones(5, 1), E4, True),
    "float8 only": Weight(NARROW, torch.ones(5, 1), None, False),
    "mx": Weight(NARROW, ONES, E4, False),
    "mx fp4": Weight(NARROW, ONES, torch.float4_e2m1fn_x2, False),
    "mx only": Weight(NARROW, ONES, None, False),
}


def quantised(outliers: float = 1.0, activations: bool = True) -> nn.Linear:
    """A layer as torchao quantises it to MX; all of its values times `outliers`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a compiled part that is not there
        pytest.importorskip("torchao")
        from torchao import quantization
        from torchao.prototype.mx_formats import MXDynamicActivationMXWeightConfig
    module = nn.Linear(64, 32).bfloat16().requires_grad_(False)
    module.weight.copy_(random(32, 64) * outliers)
    config = MXDynamicActivationMXWeightConfig(activation_dtype=E4, weight_dtype=E4)
    quantization.quantize_(module, config if activations else quantization.Float8WeightOnlyConfig())
    return module


def into_the_parts(module: nn.Linear, other: nn.Linear) -> None:
    module.weight.qdata.view(torch.uint8).copy_(other.weight.qdata.view(torch.uint8))
    module.weight.scale.view(torch.uint8).copy_(other.weight.scale.view(torch.uint8))


UPDATES: dict[str, Callable[[nn.Linear, nn.Linear], Any]] = {
    "load_state_dict": lambda module, other: module.load_state_dict(other.state_dict()),
    "weight.copy_": lambda module, other: module.weight.copy_(other.weight),
    "parts": into_the_parts,
    "assign": lambda module, other: module.load_state_dict(other.state_dict(), assign=True),
}


@pytest.mark.parametrize("activations", [True, False])
@pytest.mark.parametrize("name", UPDATES)
def test_a_torchao_weight_may_change_in_place(name: str, activations: bool) -> None:
    from nki_lib.quantization.torchao_weights import use_kernels

    module, other = quantised(1.0, activations), quantised(64.0, activations)
    with torch.no_grad():
        other.bias.copy_(module.bias)
        use_kernels(module)
        x = random(3, 64, dtype=torch.bfloat16)
        before = module(x)
        UPDATES[name](module, other)
        assert torch.equal(module(x), linear(x, other.weight, other.bias))
        assert not torch.equal(module(x), before)


def test_float8_scales_along_the_contracted_axis_are_not_read() -> None:
    from nki_lib.quantization.torchao_weights import read

    weight = quantised(activations=False).weight
    square = copy.copy(weight)
    square.qdata, square.scale = random(64, 64, dtype=E4), torch.ones(1, 64)
    assert read(weight) is not None and read(square) is None
    square.scale = torch.ones(1, 1)
    assert read(square) is not None


def test_a_linear_layer_with_its_own_forward_keeps_it() -> None:
    from nki_lib.quantization.torchao_weights import forward_of, use_kernels

    class Scaled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * 10

    plain = quantised(activations=False)
    scaled = Scaled(64, 32)
    scaled.weight = plain.weight
    assert use_kernels(scaled) == [] and forward_of(plain) is not None


@pytest.mark.parametrize("name", ["b", "b_scale", "a", "a_scale"])
@pytest.mark.parametrize("front", ["matmul_mx", "matmul"])
def test_no_gradient_is_dropped_without_a_word(name: str, front: str) -> None:
    quantized = name in ("a", "a_scale")
    call = {"a": NARROW if quantized else leaf(5, 64), "b": NARROW.mT, "b_scale": ONES.mT}
    call |= {"bias": leaf(5)} | ({"a_scale": ONES} if quantized else {})
    call[name] = call[name].clone().requires_grad_()
    out = getattr(nki_lib, front)(**call)
    with pytest.raises(errors.NoBackwardError, match="detach"):
        out.float().sum().backward()


AUTOCAST: dict[str, Callable[[], Any]] = {
    "matmul": lambda: nki_lib.matmul(NARROW[:3], NARROW.mT),
    "matmul_mx": lambda: mx(NARROW[:3], a_scale=ONES[:3]),
    "quantize": lambda: nki_lib.dequantize(*nki_lib.quantize(random(3, 64).half(), "float8_e4m3fn")),
    "mlp": lambda: nki_lib.mlp(random(3, 64), NARROW, random(64, 5), up_scale=torch.ones(5)),
    "rms_norm": lambda: nki_lib.rms_norm(random(3, 64).half(), torch.ones(64)),
    "layer_norm": lambda: nki_lib.layer_norm(random(3, 64).half(), quantize="mxfp8_e4m3")[0],
}


@pytest.mark.parametrize("name", AUTOCAST)
def test_rows_of_any_type_are_filled_up_under_autocast(name: str) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = AUTOCAST[name]()
    assert found.shape[0] == 3
    if name != "mlp":  # whose plain weights are cast
        assert torch.equal(found.float(), AUTOCAST[name]().float())


def test_a_half_backward_pass_of_projections_runs_under_autocast() -> None:
    x = leaf(1, 3, 8)
    q, k, v = nki_lib.qkv_projection(x.half(), random(24, 8).half(), num_heads=1, num_kv_heads=1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (q.sum() + k.sum() + v.sum()).backward()
    assert x.grad is not None


@pytest.mark.parametrize("name", WEIGHTS)
def test_torchao_products_have_the_type_that_autocast_asks_for(name: str) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert linear(random(3, 64), WEIGHTS[name], torch.ones(5)).dtype == torch.bfloat16


TRACED: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "b_scale": (lambda x, w, s: nki_lib.matmul(x, w.mT, b_scale=s), (random(5, 64), NARROW, torch.rand(5))),
    "constant": (
        lambda x, w: nki_lib.matmul(x, w.mT, b_scale=torch.full((5,), 0.5)),
        (random(3, 64), NARROW),
    ),
    "column": (
        lambda x: nki_lib.matmul(x.to(E4), NARROW.mT, a_scale=x.abs().amax(-1, keepdim=True)),
        (random(3, 64),),
    ),
    "bias": (lambda x, w: nki_lib.matmul(x, w.mT, bias=torch.ones(7)), (random(3, 64), random(7, 64))),
    "residual": (
        lambda x, y: nki_lib.rms_norm(torch.cat([x, x]), residual=y)[0],
        (random(3, 64), random(6, 64)),
    ),
    "whole": (lambda x: linear(x, WEIGHTS["whole"]), (random(2, 3, 64),)),
}


@pytest.mark.parametrize("name", TRACED)
def test_traced_shapes_that_are_equal_are_found_equal(name: str) -> None:
    run, arguments = TRACED[name]
    torch._dynamo.reset()
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager", dynamic=True)
    assert torch.equal(compiled(*arguments), run(*arguments))


def test_scales_of_rows_whose_number_depends_on_data() -> None:
    def run(x: Tensor, kept: Tensor) -> Tensor:
        rows = x[kept]
        return nki_lib.matmul(rows.to(E4), NARROW.mT, a_scale=rows.abs().amax(-1))

    x, kept = random(4, 64), torch.tensor([True, False, True, True])
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(x, kept), run(x, kept))


EMPTY: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "matmul K": (nki_lib.matmul, ((2, 3, 0), (0, 4))),
    "matmul_fused K": (lambda a, b: nki_lib.matmul(a, b, activation="relu"), ((2, 3, 0), (0, 4))),
    "matmul_mx N": (lambda a: nki_lib.matmul_mx(a, NARROW[:0].mT, ONES[:0].mT), ((3, 64),)),
    "matmul_mx N of one row": (lambda a: nki_lib.matmul_mx(a, NARROW[:0].mT, ONES[:0].mT), ((64,),)),
    "mlp H": (nki_lib.mlp, ((3, 0), (4, 0), (0, 4))),
    "mlp H, norm": (
        lambda x, up, down, norm, bias: nki_lib.mlp(x, up, down, norm_weight=norm, up_bias=bias, residual=x),
        ((2, 3, 0), (4, 0), (0, 4), (0,), (4,)),
    ),
    "qkv_projection H": (
        lambda x, w: nki_lib.qkv_projection(x, w, num_heads=1, num_kv_heads=1)[0],
        ((2, 3, 0), (24, 0)),
    ),
}


@pytest.mark.parametrize("name", EMPTY)
def test_axes_of_no_length_have_gradients(name: str) -> None:
    run, shapes = EMPTY[name]
    tensors = [leaf(*shape) for shape in shapes]
    run(*tensors).sum().backward()
    assert all(t.grad is not None and not t.grad.any() and t.grad.shape == t.shape for t in tensors)


@pytest.mark.parametrize("name", WEIGHTS)
def test_torchao_products_over_nothing_are_zeros(name: str) -> None:
    weight = WEIGHTS[name]
    scale = weight.scale[:, :0] if weight.blocks else weight.scale
    empty = Weight(weight.data[:, :0], scale, weight.activations, weight.whole)
    assert torch.equal(linear(torch.ones(2, 3, 0), empty), torch.zeros(2, 3, 5))
    assert linear(torch.ones(0, 64), weight).shape == (0, 5)


def summed(run: Callable[..., Tensor]) -> Callable[[int], Any]:
    return lambda rows: run(leaf(rows, 31), leaf(6, 31)).sum().backward()


STAGING: dict[str, tuple[Any, Callable[[int], Any], int]] = {
    "torchao whole": (quantize_vectors, lambda rows: linear(random(rows, 64), WEIGHTS["whole"]), 1),
    "transposed": (matmul_kernel, lambda rows: nki_lib.matmul(random(31, rows).mT, random(6, 31).mT), 1),
    "fused": (
        matmul_fused,
        lambda rows: nki_lib.matmul(random(31, rows).mT, random(6, 31).mT, bias=random(6)),
        1,
    ),
    "gradient of a sum": (matmul_kernel, summed(lambda x, w: nki_lib.matmul(x, w.mT)), 3),
    "gradient of one column": (matmul_kernel, summed(lambda x, w: nki_lib.matmul(x, w[:1].mT)), 3),
    "gradient of a slice": (matmul_kernel, summed(lambda x, w: nki_lib.matmul(x, w.mT)[:, 1:4].square()), 3),
    "mlp": (matmul_kernel, summed(lambda x, w: nki_lib.mlp(x, w, w.mT)), 4),
}


@pytest.mark.parametrize("name", STAGING)
def test_a_number_of_rows_is_no_other_program(name: str) -> None:
    kernel, run, programs = STAGING[name]
    kernel._cache.clear()
    for rows in (9, 11, 13, 16):
        run(rows)
    assert len(kernel._cache) <= programs


def test_one_scale_for_all_activations_is_that_of_the_largest() -> None:
    x = random(3, 64)
    data, scale = nki_lib.quantize(x.reshape(1, -1), "float8_e4m3fn")
    expected = nki_lib.matmul(data.view(3, 64), NARROW.mT, a_scale=scale, out_dtype=torch.float32)
    assert torch.equal(linear(x, WEIGHTS["whole"]), expected)


X, UP, DOWN, WEIGHT = random(3, 64), random(5, 64), random(64, 5), NARROW.mT
FRONTS: dict[str, tuple[Callable[..., Any], dict[str, Any], dict[str, Any]]] = {
    "matmul": (nki_lib.matmul, {"a": X, "b": WEIGHT}, {"a": None, "b": None, "activation": ["relu"]}),
    "matmul_fused": (torch.ops.nki_lib.matmul_fused, {"b": WEIGHT}, {"a": X[None]}),
    "matmul_mx": (mx, {"x": X}, {"a_format": 3, "dtype": "float32", "a_scale": 1.0}),
    "quantize": (nki_lib.quantize, {"x": X, "format": "mxfp8_e4m3"}, {"x": None, "format": 3, "dim": "1"}),
    "dequantize": (nki_lib.dequantize, {"data": NARROW, "scale": ONES}, {"scale": None, "dim": True}),
    "dtypes": (nki_lib.dequantize, {"data": NARROW, "scale": ONES}, {"dtype": "float32", "format": []}),
    "rms_norm": (nki_lib.rms_norm, {"x": X}, {"x": None, "eps": 1e39, "offset": 1e300, "quantize": 1}),
    "layer_norm": (nki_lib.layer_norm, {"x": X}, {"x": None, "eps": "x", "quantize": b"float8_e5m2"}),
    "mlp": (nki_lib.mlp, {"x": X, "up": UP, "down": DOWN}, {"up": None, "norm": 1, "limit": True, "eps": -1}),
    "linear": (linear, {"x": X, "weight": WEIGHTS["mx"]}, {"x": X[:, 1:], "bias": 1.0, "weight": None}),
}


@pytest.mark.parametrize(("front", "name"), [(front, name) for front in FRONTS for name in FRONTS[front][2]])
def test_what_is_refused_is_named(front: str, name: str) -> None:
    run, right, wrong = FRONTS[front]
    with pytest.raises(errors.NkiError, match=f"`{name}`") as found:
        run(**right | {name: wrong[name]})
    assert "allowed" in str(found.value)
