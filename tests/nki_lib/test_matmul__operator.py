"""`nki_lib.matmul` as PyTorch sees it: schema, fakes, compile, export, errors."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import nki_lib  # noqa: E402
from nki import errors  # noqa: E402
from nki_lib.linear.matmul import api  # noqa: E402
from nki_lib.linear.matmul.api import matmul  # noqa: E402
from nki_lib.linear.matmul.fused import matmul_fused as kernel  # noqa: E402

OPS = torch.ops.nki_lib


def random(*shape: int, dtype: Any = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def test_schemas() -> None:
    assert str(OPS.matmul.default._schema) == "nki_lib::matmul(Tensor a, Tensor b) -> Tensor"
    assert str(OPS.matmul_fused.default._schema) == (
        "nki_lib::matmul_fused(Tensor a, Tensor b, Tensor? bias=None, Tensor? a_scale=None, Tensor? b_scale=None, *, "
        "str? activation=None, ScalarType? out_dtype=None) -> Tensor"
    )


@pytest.mark.slow
def test_opcheck() -> None:
    leaves = [random(*shape).requires_grad_() for shape in ((3, 4), (4, 5), (5,))]
    torch.library.opcheck(OPS.matmul_fused, tuple(leaves), {"activation": "gelu"})
    torch.library.opcheck(OPS.matmul_fused, (random(4, 3).mT, random(4, 5)), {"out_dtype": torch.bfloat16})
    a, b = random(3, 4).to(torch.float8_e5m2), random(4, 5).to(torch.float8_e4m3fn)
    fakes = ("test_faketensor", "test_autograd_registration")  # PyTorch compares no 8-bit tensors for changes
    torch.library.opcheck(OPS.matmul_fused, (a, b, None, random(3), random(5)), test_utils=fakes)


class Layer(nn.Module):
    """Two linear layers with an activation between them."""

    def __init__(self, ours: bool) -> None:
        super().__init__()
        self.ours = ours
        self.up, self.down = nn.Parameter(random(24, 6) / 3), nn.Parameter(random(6, 24) / 5)
        self.bias = nn.Parameter(random(24))

    def forward(self, x: Tensor) -> Tensor:
        """[B, S, 6] -> the same."""
        if self.ours:
            return matmul(matmul(x, self.up.mT, bias=self.bias, activation="silu"), self.down.mT)
        return functional.silu(x @ self.up.mT + self.bias) @ self.down.mT


@pytest.mark.slow
def test_compiles_as_one_graph_with_gradients_for_all_lengths() -> None:
    torch._dynamo.reset()
    ours, theirs = Layer(True), Layer(False)
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager", dynamic=True)
    for batch, length in ((2, 5), (3, 9), (4, 70)):
        x = random(batch, length, 6)
        found, expected = compiled(x), theirs(x)
        assert torch.allclose(found, expected, atol=1e-4)
        mine = torch.autograd.grad(found.square().mean(), list(ours.parameters()))
        true = torch.autograd.grad(expected.square().mean(), list(theirs.parameters()))
        assert all(torch.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in zip(mine, true))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    torch._dynamo.reset()


@pytest.mark.slow
def test_exports_with_a_dynamic_length() -> None:
    length = torch.export.Dim("length", min=2, max=512)
    program = torch.export.export(Layer(True), (random(2, 5, 6),), dynamic_shapes=({1: length},))
    called = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert {"nki_lib.matmul.default", "nki_lib.matmul_fused.default"} <= called
    other = random(2, 77, 6)
    assert torch.allclose(program.module()(other), Layer(False)(other), atol=1e-4)


def test_meta_tensors() -> None:
    a, b = (torch.empty(*s, device="meta", dtype=torch.float8_e5m2) for s in ((2, 3, 4), (4, 5)))
    found = matmul(a.transpose(0, 1), b, activation="relu")
    assert found.shape == (3, 2, 5) and found.dtype == torch.bfloat16
    assert found.device.type == "meta" and found.is_contiguous()


def test_other_lengths_and_scales_stage_nothing_new() -> None:
    weight, bias = random(9, 33).to(torch.float8_e4m3fn), random(9)
    matmul(random(64, 33), weight.mT, bias=bias, b_scale=torch.ones(9))
    before = len(kernel._cache)
    for count in (33, 41, 60):
        matmul(random(count, 33), weight.mT, bias=bias, b_scale=torch.full((1,), count / 9))
    assert len(kernel._cache) == before


def narrow(*shape: int) -> Tensor:
    return random(*shape).to(torch.float8_e4m3fn)


WRONG: dict[str, tuple[type[Exception], str, Any]] = {
    "vector": (errors.ShapeError, "`a`", lambda r, q: matmul(r(4), r(4, 5))),
    "b rank": (errors.ShapeError, "`b`", lambda r, q: matmul(r(3, 4), r(2, 4, 5))),
    "contracted": (errors.ShapeError, "`b`", lambda r, q: matmul(r(2, 3, 4), r(3, 5))),
    "float64": (errors.DtypeError, "`a`", lambda r, q: matmul(r(3, 4).double(), r(4, 5))),
    "b dtype": (errors.DtypeError, "`b`", lambda r, q: matmul(r(3, 4), r(4, 5).half())),
    "a alone 8-bit": (errors.DtypeError, "`b`", lambda r, q: matmul(q(3, 4), r(4, 5))),
    "bias shape": (errors.ShapeError, "`bias`", lambda r, q: matmul(r(3, 4), r(4, 5), bias=r(3))),
    "bias dtype": (errors.DtypeError, "`bias`", lambda r, q: matmul(r(3, 4), r(4, 5), bias=q(5))),
    "activation": (
        errors.ArgumentError,
        "`activation`",
        lambda r, q: matmul(r(3, 4), r(4, 5), activation="swish"),  # type: ignore[arg-type]
    ),
    "out": (errors.DtypeError, "`out_dtype`", lambda r, q: matmul(r(3, 4), r(4, 5), out_dtype=torch.int8)),
    "scale alone": (errors.ArgumentError, "`b_scale`", lambda r, q: matmul(r(3, 4), r(4, 5), b_scale=r(5))),
    "a scale alone": (errors.ArgumentError, "`a_scale`", lambda r, q: matmul(r(3, 4), q(4, 5), a_scale=r(3))),
    "scale shape": (errors.ShapeError, "`b_scale`", lambda r, q: matmul(r(3, 4), q(4, 5), b_scale=r(5, 1))),
    "a scale shape": (errors.ShapeError, "`a_scale`", lambda r, q: matmul(q(3, 4), q(4, 5), a_scale=r(1, 3))),
    "scale dtype": (
        errors.DtypeError,
        "`b_scale`",
        lambda r, q: matmul(r(3, 4), q(4, 5), b_scale=r(5).half()),
    ),
    "microscales": (
        errors.ShapeError,
        "`b_scale`",
        lambda r, q: matmul(r(3, 64), q(64, 5), b_scale=r(3, 5).to(torch.float8_e8m0fnu)),
    ),
    "microscales and activation": (
        errors.ArgumentError,
        "`activation`",
        lambda r, q: matmul(r(3, 64), q(64, 5), b_scale=r(2, 5).to(torch.float8_e8m0fnu), activation="gelu"),
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_name_the_argument(case: str) -> None:
    kind, named, make = WRONG[case]
    for device in ("cpu", "meta"):
        with pytest.raises(kind, match=named) as caught:
            make(lambda *s: random(*s).to(device), lambda *s: narrow(*s).to(device))  # noqa: B023
        text = str(caught.value)
        assert "matmul" in text and "found:" in text and "allowed:" in text


def test_other_layouts_and_devices_are_refused() -> None:
    with pytest.raises(errors.ArgumentError, match="`bias`"):
        matmul(random(3, 4), random(4, 5), bias=random(5).to_sparse())
    for name in ("b", "bias"):
        options = {"b": random(4, 5), "bias": random(5)}
        options[name] = options[name].to("meta")
        with pytest.raises(errors.ArgumentError, match=f"`{name}`"):
            matmul(random(3, 4), **options)


def test_no_gradient_of_scales() -> None:
    scale = torch.ones(5, requires_grad=True)
    with pytest.raises(errors.NoBackwardError, match="detach"):
        matmul(random(3, 4), narrow(4, 5), b_scale=scale).sum().backward()


def test_without_torch_the_front_door_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_HAS_TORCH", False)
    with pytest.raises(errors.MissingExtraError, match=r"open-nki\[torch\]"):
        matmul(None, None)  # type: ignore[arg-type]


def test_microscaled_factors_go_to_their_own_product() -> None:
    scale = torch.full((2, 5), 127, dtype=torch.uint8).view(torch.float8_e8m0fnu)
    a, b = random(3, 64, dtype=torch.bfloat16), narrow(64, 5)
    bias = random(5, dtype=torch.bfloat16)
    assert torch.equal(matmul(a, b, b_scale=scale, bias=bias), nki_lib.matmul_mx(a, b, scale, bias=bias))
