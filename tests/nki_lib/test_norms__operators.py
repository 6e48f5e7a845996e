"""`rms_norm` and `layer_norm` as PyTorch sees them: schema, fakes, compile, export, errors."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from nki import errors  # noqa: E402
from nki_lib.norm.layer_norm import api as layer_api  # noqa: E402
from nki_lib.norm.layer_norm.api import layer_norm  # noqa: E402
from nki_lib.norm.rms_norm import api as rms_api  # noqa: E402
from nki_lib.norm.rms_norm.api import rms_norm  # noqa: E402
from nki_lib.norm.rms_norm.reference import rms_norm as reference  # noqa: E402

OPS = torch.ops.nki_lib
SCHEMAS = {
    "rms_norm": "(Tensor x, Tensor? weight=None, Tensor? residual=None, *, float eps=9.9999999999999995e-07, "
    "float offset=0., str? quantize=None) -> Tensor[]",
    "layer_norm": "(Tensor x, Tensor? weight=None, Tensor? bias=None, Tensor? residual=None, *, "
    "float eps=1.0000000000000001e-05, str? quantize=None) -> Tensor[]",
}
QUICK = ("test_schema", "test_faketensor")


def random(*shape: int, dtype: Any = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def leaf(*shape: int) -> Tensor:
    return random(*shape).requires_grad_()


@pytest.mark.parametrize("name", SCHEMAS)
def test_schema(name: str) -> None:
    assert str(getattr(OPS, name).default._schema) == f"nki_lib::{name}{SCHEMAS[name]}"


@pytest.mark.slow
def test_opcheck() -> None:
    torch.library.opcheck(OPS.rms_norm, (leaf(2, 5, 40), leaf(40), leaf(2, 5, 40)), {"offset": 1.0})
    torch.library.opcheck(OPS.rms_norm, (leaf(5, 40),))
    torch.library.opcheck(OPS.rms_norm, (random(2, 64),), {"quantize": "mxfp8_e5m2"}, test_utils=QUICK)
    torch.library.opcheck(OPS.rms_norm, (random(0, 64),), {"quantize": "float8_e5m2"}, test_utils=QUICK)
    torch.library.opcheck(OPS.layer_norm, (leaf(2, 5, 40), leaf(40), leaf(40), leaf(2, 5, 40)))
    torch.library.opcheck(OPS.layer_norm, (leaf(5, 40), None, leaf(40)))
    torch.library.opcheck(OPS.layer_norm, (random(5, 40).T,), test_utils=QUICK)
    rows = (random(5, 40), random(5, 40), random(40))
    torch.library.opcheck(OPS.rms_norm_backward, rows, {"learned": True}, test_utils=QUICK)
    both = (*rows, random(40), random(5, 40))
    torch.library.opcheck(OPS.layer_norm_backward, both, {"learned": True}, test_utils=QUICK)


class Layer(nn.Module):
    """A block with a residual before either norm."""

    def __init__(self, ours: bool) -> None:
        super().__init__()
        self.ours = ours
        self.first, self.second, self.bias = (nn.Parameter(random(size) / 3) for size in (40, 40, 40))

    def forward(self, x: Tensor, added: Tensor) -> Tensor:
        if self.ours:
            out, sums = rms_norm(x, self.first, 1e-5, residual=added, offset=1.0)
            return layer_norm(out.sin(), self.second, self.bias, residual=sums)[0]
        sums = x + added
        out = reference(sums, self.first, eps=1e-5, offset=1.0)
        return nn.functional.layer_norm(out.sin() + sums, (40,), self.second, self.bias)


@pytest.mark.slow
def test_compiles_as_one_graph_with_gradients_for_all_lengths() -> None:
    torch._dynamo.reset()
    ours, theirs = Layer(True), Layer(False)
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager", dynamic=True)
    for batch, length in ((2, 5), (3, 9), (4, 130)):
        x, added = random(batch, length, 40), random(batch, length, 40)
        found, expected = compiled(x, added), theirs(x, added)
        assert torch.allclose(found, expected, atol=1e-5)
        mine = torch.autograd.grad(found.sin().mean(), list(ours.parameters()))
        true = torch.autograd.grad(expected.sin().mean(), list(theirs.parameters()))
        assert all(torch.allclose(a, b, rtol=1e-3, atol=1e-5) for a, b in zip(mine, true))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    torch._dynamo.reset()


@pytest.mark.slow
def test_exports_with_a_dynamic_length() -> None:
    length = torch.export.Dim("length", min=2, max=512)
    example = (random(2, 5, 40), random(2, 5, 40))
    program = torch.export.export(Layer(True), example, dynamic_shapes=({1: length}, {1: length}))
    called = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert {"nki_lib.rms_norm.default", "nki_lib.layer_norm.default"} <= called
    other = (random(2, 77, 40), random(2, 77, 40))
    assert torch.allclose(program.module()(*other), Layer(False)(*other), atol=1e-5)


@pytest.mark.parametrize("norm", [rms_norm, layer_norm])
def test_meta_tensors(norm: Any) -> None:
    x = torch.empty(2, 64, 5, device="meta", dtype=torch.bfloat16).mT
    out, sums = norm(x, x[0, 0], residual=x)
    assert out.shape == sums.shape == (2, 5, 64) and out.is_contiguous() and sums.device.type == "meta"
    data, scale = norm(x, quantize="mxfp8_e4m3")
    assert data.dtype == torch.float8_e4m3fn and scale.shape == (2, 5, 2)


@pytest.mark.parametrize("norm", [rms_norm, layer_norm])
def test_a_quantised_result_has_no_gradient(norm: Any) -> None:
    data, _ = norm(leaf(3, 64), quantize="float8_e5m2")
    with pytest.raises(errors.NoBackwardError, match="quantize"):
        data.float().sum().backward()


X = (2, 5, 40)
WRONG: dict[str, tuple[type[Exception], str, Any]] = {
    "rms_norm: no axis": (errors.ShapeError, "`x`", lambda r: rms_norm(r())),
    "rms_norm: no columns": (errors.ShapeError, "`x`", lambda r: rms_norm(r(3, 0))),
    "rms_norm: float64": (errors.DtypeError, "`x`", lambda r: rms_norm(r(*X).double())),
    "rms_norm: weight": (errors.ShapeError, "`weight`", lambda r: rms_norm(r(*X), r(41))),
    "rms_norm: weight type": (errors.DtypeError, "`weight`", lambda r: rms_norm(r(*X), r(40).long())),
    "rms_norm: weight rank": (errors.ShapeError, "`weight`", lambda r: rms_norm(r(*X), r(1, 40))),
    "rms_norm: residual": (errors.ShapeError, "`residual`", lambda r: rms_norm(r(*X), residual=r(1, 5, 40))),
    "rms_norm: residual type": (
        errors.DtypeError,
        "`residual`",
        lambda r: rms_norm(r(*X), residual=r(*X).half()),
    ),
    "rms_norm: eps": (errors.ArgumentError, "`eps`", lambda r: rms_norm(r(*X), eps=float("nan"))),
    "rms_norm: format": (errors.ArgumentError, "`quantize`", lambda r: rms_norm(r(*X), quantize="int8")),
    "rms_norm: blocks": (errors.ShapeError, "`quantize`", lambda r: rms_norm(r(*X), quantize="mxfp8_e4m3")),
    "rms_norm: long rows": (
        errors.ShapeError,
        "`quantize`",
        lambda r: rms_norm(r(1, 8193), quantize="float8_e5m2"),
    ),
    "layer_norm: weight": (errors.ShapeError, "`weight`", lambda r: layer_norm(r(*X), r(41))),
    "layer_norm: bias": (errors.ShapeError, "`bias`", lambda r: layer_norm(r(*X), r(40), r(4))),
    "layer_norm: eps": (errors.ArgumentError, "`eps`", lambda r: layer_norm(r(*X), eps=-1.0)),
    "layer_norm: format": (errors.ArgumentError, "`quantize`", lambda r: layer_norm(r(*X), quantize="fp4")),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_name_the_argument(case: str) -> None:
    kind, named, make = WRONG[case]
    for device in ("cpu", "meta"):
        with pytest.raises(kind, match=named) as caught:
            make(lambda *shape: random(*shape).to(device))  # noqa: B023
        text = str(caught.value)
        assert case.split(":")[0] in text and "found:" in text and "allowed:" in text


def test_devices_and_layouts() -> None:
    with pytest.raises(errors.ArgumentError, match="`weight`"):
        rms_norm(random(*X), random(40).to("meta"))
    with pytest.raises(errors.ArgumentError, match="`bias`"):
        layer_norm(random(*X), random(40), random(40).to_sparse())


@pytest.mark.parametrize("api", [rms_api, layer_api])
def test_without_torch_the_front_door_says_what_to_install(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_HAS_TORCH", False)
    with pytest.raises(errors.MissingExtraError, match=r"open-nki\[torch\]"):
        getattr(api, api.__name__.split(".")[-2])(None)
