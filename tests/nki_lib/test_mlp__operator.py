"""`mlp` as PyTorch sees it: schema, fakes, compile, export, errors."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from nki import errors  # noqa: E402
from nki_lib.linear.mlp import api  # noqa: E402
from nki_lib.linear.mlp.api import mlp  # noqa: E402

OPS = torch.ops.nki_lib
SCHEMA = (
    "nki_lib::mlp(Tensor x, Tensor up, Tensor down, Tensor? gate=None, Tensor? up_bias=None, "
    "Tensor? gate_bias=None, Tensor? down_bias=None, Tensor? norm_weight=None, Tensor? norm_bias=None, "
    "Tensor? residual=None, Tensor? up_scale=None, Tensor? gate_scale=None, Tensor? down_scale=None, "
    '*, str activation="silu", str norm="rms", float eps=9.9999999999999995e-07, '
    "float offset=0., float? limit=None) -> Tensor"
)


def random(*shape: int, dtype: Any = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def leaf(*shape: int) -> Tensor:
    return random(*shape).requires_grad_()


def test_schema() -> None:
    assert str(OPS.mlp.default._schema) == SCHEMA


@pytest.mark.slow
def test_opcheck() -> None:
    quick = ("test_schema", "test_faketensor")
    narrow = (random(5, 12), random(20, 12).to(torch.float8_e5m2), random(12, 20))
    eight_bits = (*narrow, *[None] * 7, random(20))
    torch.library.opcheck(OPS.mlp, eight_bits, test_utils=quick[1:])  # the other one multiplies the weights
    weights = (leaf(20, 12), leaf(12, 20), leaf(20, 12))
    biases = (leaf(20), leaf(20), leaf(12))
    torch.library.opcheck(OPS.mlp, (leaf(2, 5, 12), *weights, *biases, leaf(12), None, leaf(2, 5, 12)))
    torch.library.opcheck(
        OPS.mlp, (leaf(5, 12), *weights[:2]), {"activation": "relu2", "limit": 1.0, "norm": "layer"}
    )
    torch.library.opcheck(OPS.mlp, (random(0, 12), random(20, 12), random(12, 20)), test_utils=quick)
    torch.library.opcheck(OPS.mlp, (random(12, 5).T, random(20, 12), random(20, 12).T), test_utils=quick)
    hidden = [random(5, 20) for _ in range(3)]
    torch.library.opcheck(OPS.mlp_backward, (*hidden, random(20)), {"activation": "gelu"}, test_utils=quick)
    torch.library.opcheck(OPS.mlp_backward, hidden[:2], test_utils=quick)


class Layer(nn.Module):
    """The second half of a transformer block."""

    def __init__(self, ours: bool) -> None:
        super().__init__()
        self.ours = ours
        self.up, self.gate, self.down = (nn.Parameter(random(*s) / 4) for s in ((20, 12), (20, 12), (12, 20)))
        self.norm, self.bias = nn.Parameter(1 + random(12) / 9), nn.Parameter(random(12))

    def forward(self, x: Tensor) -> Tensor:
        """[B, S, 12] -> the same."""
        if self.ours:
            around = {"norm_weight": self.norm, "down_bias": self.bias, "residual": x}
            return mlp(x, self.up, self.down, gate=self.gate, eps=1e-5, **around)
        rows = functional.rms_norm(x, (12,), self.norm, 1e-5)
        hidden = functional.silu(rows @ self.gate.mT) * (rows @ self.up.mT)
        return x + functional.linear(hidden, self.down, self.bias)


@pytest.mark.slow
def test_compiles_as_one_graph_with_gradients_for_all_lengths() -> None:
    torch._dynamo.reset()
    ours, theirs = Layer(True), Layer(False)
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager", dynamic=True)
    for batch, length in ((2, 5), (3, 9), (4, 130)):
        x = random(batch, length, 12)
        found, expected = compiled(x), theirs(x)
        assert torch.allclose(found, expected, atol=1e-5)
        mine = torch.autograd.grad(found.sin().mean(), list(ours.parameters()))
        true = torch.autograd.grad(expected.sin().mean(), list(theirs.parameters()))
        assert all(torch.allclose(a, b, rtol=1e-3, atol=1e-6) for a, b in zip(mine, true))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    torch._dynamo.reset()


@pytest.mark.slow
def test_exports_with_a_dynamic_length() -> None:
    length = torch.export.Dim("length", min=2, max=512)
    program = torch.export.export(Layer(True), (random(2, 5, 12),), dynamic_shapes=({1: length},))
    called = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert "nki_lib.mlp.default" in called
    other = random(2, 77, 12)
    assert torch.allclose(program.module()(other), Layer(False)(other), atol=1e-5)


def test_meta_tensors() -> None:
    x, up, down = (torch.empty(*s, device="meta") for s in ((2, 12, 5), (20, 12), (12, 20)))
    out = mlp(x.mT, up, down)
    assert out.shape == (2, 5, 12) and out.is_contiguous() and out.device.type == "meta"


WRONG: dict[str, tuple[type[Exception], str, dict[str, Any]]] = {
    "rank": (errors.ShapeError, "`x`", {"x": ()}),
    "float64": (errors.DtypeError, "`x`", {"x": torch.float64}),
    "up: rank": (errors.ShapeError, "`up`", {"up": (20,)}),
    "up: columns": (errors.ShapeError, "`up`", {"up": (20, 13)}),
    "up: type": (errors.DtypeError, "`up`", {"up": torch.float16}),
    "down": (errors.ShapeError, "`down`", {"down": (20, 12)}),
    "gate": (errors.ShapeError, "`gate`", {"gate": (21, 12)}),
    "up_bias": (errors.ShapeError, "`up_bias`", {"up_bias": (12,)}),
    "gate_bias": (errors.ShapeError, "`gate_bias`", {"gate_bias": (12,), "gate": (20, 12)}),
    "gate_bias alone": (errors.ArgumentError, "`gate_bias`", {"gate_bias": (20,)}),
    "down_bias": (errors.ShapeError, "`down_bias`", {"down_bias": (20,)}),
    "residual": (errors.ShapeError, "`residual`", {"residual": (1, 5, 12)}),
    "norm_weight": (errors.ShapeError, "`norm_weight`", {"norm_weight": (20,)}),
    "norm_bias": (errors.ArgumentError, "`norm_bias`", {"norm_weight": (12,), "norm_bias": (12,)}),
    "norm_bias alone": (errors.ArgumentError, "`norm_bias`", {"norm_bias": (12,), "norm": "layer"}),
    "up_scale": (errors.ArgumentError, "`up_scale`", {"up_scale": (20,)}),
    "up_scale missing": (errors.DtypeError, "`up_scale`", {"up": torch.float8_e5m2}),
    "down_scale": (errors.ShapeError, "`down_scale`", {"down": torch.float8_e5m2, "down_scale": (20,)}),
    "gate_scale alone": (errors.ArgumentError, "`gate_scale`", {"gate_scale": (20,)}),
    "norm": (errors.ArgumentError, "`norm`", {"norm": "batch"}),
    "eps": (errors.ArgumentError, "`eps`", {"eps": float("inf")}),
    "offset": (errors.ArgumentError, "`offset`", {"offset": 1.0, "norm": "layer"}),
    "activation": (errors.ArgumentError, "`activation`", {"activation": "tanh"}),
    "limit": (errors.ArgumentError, "`limit`", {"limit": 0.0}),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_name_the_argument(case: str) -> None:
    kind, named, wrong = WRONG[case]
    for device in ("cpu", "meta"):
        arguments = {"x": random(2, 5, 12), "up": random(20, 12), "down": random(12, 20)}
        for name, value in wrong.items():
            if isinstance(value, torch.dtype):
                arguments[name] = arguments[name].to(value)
            else:
                arguments[name] = random(*value) if isinstance(value, tuple) else value
        on = {k: v.to(device) if isinstance(v, Tensor) else v for k, v in arguments.items()}
        with pytest.raises(kind, match=named) as caught:
            mlp(**on)
        assert (
            "mlp" in str(caught.value) and "found:" in str(caught.value) and "allowed:" in str(caught.value)
        )


def test_weights_in_8_bits_have_no_gradient() -> None:
    out = mlp(leaf(5, 12), random(20, 12).to(torch.float8_e5m2), random(12, 20), up_scale=random(20))
    with pytest.raises(errors.NoBackwardError, match="up"):
        out.sum().backward()


def test_devices_and_layouts() -> None:
    x, up, down = random(5, 12), random(20, 12), random(12, 20)
    with pytest.raises(errors.ArgumentError, match="`norm_weight`"):
        mlp(x, up, down, norm_weight=random(12).to("meta"))
    with pytest.raises(errors.ArgumentError, match="`down`"):
        mlp(x, up, down.to_sparse())


def test_without_torch_the_front_door_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_HAS_TORCH", False)
    with pytest.raises(errors.MissingExtraError, match=r"open-nki\[torch\]"):
        mlp(None, None, None)
