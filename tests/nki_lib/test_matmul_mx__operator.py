"""`matmul_mx` as PyTorch sees it: schema, fakes, gradients, compile, export, errors."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from nki import errors  # noqa: E402
from nki_lib.linear.matmul_mx import api  # noqa: E402
from nki_lib.linear.matmul_mx.api import matmul_mx  # noqa: E402
from nki_lib.linear.matmul_mx.kernel import matmul_mx as kernel  # noqa: E402
from nki_lib.quantization.dequantize.api import dequantize  # noqa: E402
from nki_lib.quantization.quantize.api import quantize  # noqa: E402

OP = torch.ops.nki_lib.matmul_mx


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def weight_of(rows: int, depth: int, format: Any = "mxfp4_e2m1") -> tuple[Tensor, Tensor]:
    """A quantised weight as its transposed views."""
    data, scale = quantize(random(rows, depth), format)
    return data.mT, scale.mT


def test_schema() -> None:
    assert str(OP.default._schema) == (
        "nki_lib::matmul_mx(Tensor a, Tensor b, Tensor b_scale, Tensor? a_scale=None, Tensor? bias=None, *, "
        'str a_format="mxfp8_e4m3", ScalarType? dtype=None) -> Tensor'
    )


@pytest.mark.slow
def test_opcheck() -> None:
    """PyTorch compares no float8 inputs, which its test of the schema does: bytes stand in for them there."""
    data, scale = (t.view(torch.uint8) for t in weight_of(9, 64))
    a, bias = random(2, 3, 64).requires_grad_(), random(9).requires_grad_()
    torch.library.opcheck(OP, (a, data, scale, None, bias))
    typed = (random(3, 64).bfloat16(), *weight_of(9, 64, "mxfp8_e5m2"))
    quick = ("test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(OP, typed, {"dtype": torch.float32}, test_utils=quick)
    left, left_scale = quantize(random(3, 64), "mxfp8_e4m3")
    torch.library.opcheck(OP, (left, *weight_of(9, 64), left_scale), test_utils=quick)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_go_straight_through_the_rounding(dtype: Any) -> None:
    data, scale = weight_of(9, 64)
    a, bias = random(2, 3, 64).to(dtype).requires_grad_(), random(9).requires_grad_()
    grad = random(2, 3, 9).to(dtype)
    of_a, of_bias = torch.autograd.grad(matmul_mx(a, data, scale, bias=bias), (a, bias), grad)
    exact = grad.double() @ dequantize(data, scale, dim=0).double().mT
    assert of_a.dtype == dtype and of_bias.dtype == torch.float32
    eps = torch.finfo(dtype).eps
    assert torch.allclose(of_a.double(), exact, rtol=4 * eps, atol=40 * eps)
    assert torch.allclose(of_bias.double(), grad.double().sum((0, 1)), rtol=1e-6, atol=1e-6)
    left, left_scale = quantize(random(3, 64), "mxfp8_e4m3")
    out = matmul_mx(left, data, scale, left_scale, bias, dtype=torch.float32)
    assert torch.equal(torch.autograd.grad(out.sum(), bias)[0], torch.full((9,), 3.0))


class Layer(nn.Module):
    """A linear layer with a microscaled weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.scale = (nn.Buffer(t) for t in quantize(random(9, 64), "mxfp8_e4m3"))
        self.bias = nn.Parameter(random(9))

    def forward(self, x: Tensor) -> Tensor:
        """[..., 64] -> [..., 9]."""
        return matmul_mx(x.tanh(), self.weight.mT, self.scale.mT, bias=self.bias) * 2


@pytest.mark.slow
def test_compiles_as_one_graph_and_exports() -> None:
    torch._dynamo.reset()
    layer = Layer()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    for batch, length in ((2, 3), (3, 5), (2, 70)):
        x = random(batch, length, 64).requires_grad_()
        found, expected = compiled(x), layer(x)
        assert torch.equal(found, expected)
        assert torch.allclose(*(torch.autograd.grad(y.square().sum(), x)[0] for y in (found, expected)))
    length = torch.export.Dim("length", min=2, max=512)
    program = torch.export.export(layer, (random(2, 3, 64),), dynamic_shapes=({1: length},))
    assert torch.equal(program.module()(random(2, 77, 64)), layer(random(2, 77, 64)))
    torch._dynamo.reset()


def test_meta_tensors_and_autocast() -> None:
    data, scale = weight_of(9, 64)
    a = random(2, 3, 64)
    found = matmul_mx(a.to("meta").transpose(0, 1), data.to("meta"), scale.to("meta"))
    assert found.shape == (3, 2, 9) and found.is_contiguous() and found.dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert matmul_mx(a, data, scale).dtype == torch.bfloat16


def test_other_numbers_of_rows_stage_nothing_new_and_weights_are_not_copied() -> None:
    data, scale = weight_of(9, 96, "mxfp8_e4m3")
    for rows in (64, 33):
        matmul_mx(random(rows, 96), data, scale)
    before = len(kernel._cache)
    for rows in (34, 41, 60):
        matmul_mx(random(rows, 96), data, scale)
    assert len(kernel._cache) == before
    from nki_lib.linear.matmul_mx.op import in_memory

    for b, s in ((data, scale), (data.view(torch.uint8).contiguous(), scale.view(torch.uint8).contiguous())):
        kept = in_memory(b.view(torch.uint8), s.view(torch.uint8))
        assert kept[0].data_ptr() == b.data_ptr() and kept[1].data_ptr() == s.data_ptr()


def bytes_like(r: Any, *shape: int) -> Tensor:
    return r(*shape).to(torch.uint8)


def call(r: Any, a: Any = (3, 64), b: Any = (32, 9), scale: Any = (2, 9), **options: Any) -> Tensor:
    """The operator on arguments of these shapes, b and scales as bytes of 4-bit elements."""
    return matmul_mx(r(*a), bytes_like(r, *b), bytes_like(r, *scale), **options)


WRONG: dict[str, tuple[type[Exception], str, Any]] = {
    "rows of b": (errors.ShapeError, "`a`", lambda r: call(r, a=(3, 32))),
    "b's rank": (errors.ShapeError, "`b`", lambda r: call(r, b=(2, 32, 9))),
    "blocks": (errors.ShapeError, "`b`", lambda r: call(r, a=(3, 40), b=(20, 9))),
    "b's scale": (errors.ShapeError, "`b_scale`", lambda r: call(r, scale=(9, 2))),
    "b's type": (errors.DtypeError, "`b`", lambda r: matmul_mx(r(3, 64), r(64, 9), bytes_like(r, 2, 9))),
    "scale's type": (
        errors.DtypeError,
        "`b_scale`",
        lambda r: matmul_mx(r(3, 64), bytes_like(r, 32, 9), r(2, 9)),
    ),
    "a's type": (
        errors.DtypeError,
        "`a`",
        lambda r: matmul_mx(bytes_like(r, 3, 64), bytes_like(r, 32, 9), bytes_like(r, 2, 9)),
    ),
    "a's format": (errors.ArgumentError, "`a_format`", lambda r: call(r, a_format="mxfp4_e2m1")),
    "a's scale": (
        errors.ShapeError,
        "`a_scale`",
        lambda r: matmul_mx(*(bytes_like(r, *shape) for shape in ((3, 32), (32, 9), (2, 9), (2, 3)))),
    ),
    "bias": (errors.ShapeError, "`bias`", lambda r: call(r, bias=r(8))),
    "bias' type": (errors.DtypeError, "`bias`", lambda r: call(r, bias=r(9).double())),
    "dtype": (errors.DtypeError, "`dtype`", lambda r: call(r, dtype=torch.float64)),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_name_the_argument(case: str) -> None:
    kind, named, make = WRONG[case]
    for device in ("cpu", "meta"):
        with pytest.raises(kind, match=named) as caught:
            make(lambda *shape: random(*shape).to(device))  # noqa: B023
        text = str(caught.value)
        assert "matmul_mx" in text and "found:" in text and "allowed:" in text


def test_sparse_tensors_and_mixed_devices_are_refused() -> None:
    data, scale = weight_of(9, 64)
    with pytest.raises(errors.ArgumentError, match="`a`"):
        matmul_mx(random(3, 64).to_sparse(), data, scale)
    with pytest.raises(errors.ArgumentError, match="`b_scale`"):
        matmul_mx(random(3, 64), data, scale.to("meta"))


def test_without_torch_the_front_door_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_HAS_TORCH", False)
    with pytest.raises(errors.MissingExtraError, match=r"open-nki\[torch\]"):
        matmul_mx(None, None, None)
