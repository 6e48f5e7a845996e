"""`rope`, `qkv_projection` and `output_projection` as PyTorch sees them: schema, fakes, compile, export, errors."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from nki import errors  # noqa: E402
from nki_lib.attention.output_projection import api as output_api  # noqa: E402
from nki_lib.attention.output_projection.api import output_projection  # noqa: E402
from nki_lib.attention.qkv_projection import api as qkv_api  # noqa: E402
from nki_lib.attention.qkv_projection.api import qkv_projection  # noqa: E402
from nki_lib.attention.rope import api as rope_api  # noqa: E402
from nki_lib.attention.rope.api import rope  # noqa: E402
from tests.nki_lib.projection_bounds import projected, rotated  # noqa: E402

OPS = torch.ops.nki_lib
SCHEMAS = {
    "rope": "(Tensor x, Tensor cos, Tensor sin, *, bool interleaved=False) -> Tensor",
    "qkv_projection": "(Tensor x, Tensor weight, Tensor? bias=None, Tensor? norm_weight=None, Tensor? cos=None, "
    "Tensor? sin=None, *, int num_heads, int num_kv_heads, float eps=9.9999999999999995e-07, "
    "bool interleaved=False) -> (Tensor, Tensor, Tensor)",
    "output_projection": "(Tensor attn, Tensor weight, Tensor? bias=None, Tensor? residual=None) -> Tensor",
}


def random(*shape: int, dtype: Any = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


@pytest.mark.parametrize("name", SCHEMAS)
def test_schema(name: str) -> None:
    assert str(getattr(OPS, name).default._schema) == f"nki_lib::{name}{SCHEMAS[name]}"


@pytest.mark.slow
def test_opcheck() -> None:
    def leaf(*shape: int, dtype: Any = torch.float32) -> Tensor:
        return random(*shape, dtype=dtype).requires_grad_()

    tables = (random(5, 4), random(5, 4))
    torch.library.opcheck(OPS.rope, (leaf(2, 3, 5, 8), *tables), {"interleaved": True})
    quick = ("test_schema", "test_faketensor")
    torch.library.opcheck(OPS.rope, (random(2, 5, 3, 8).transpose(1, 2), *tables), test_utils=quick)
    heads = {"num_heads": 2, "num_kv_heads": 1}
    narrow = (leaf(2, 5, 6, dtype=torch.bfloat16), leaf(32, 6, dtype=torch.bfloat16))
    torch.library.opcheck(OPS.qkv_projection, narrow, heads, test_utils=quick)
    torch.library.opcheck(
        OPS.qkv_projection, (leaf(2, 5, 6), leaf(32, 6), leaf(32), leaf(6), *tables), {**heads, "eps": 1e-5}
    )
    torch.library.opcheck(OPS.output_projection, (leaf(2, 2, 5, 8), leaf(6, 16), leaf(6), leaf(2, 5, 6)))
    torch.library.opcheck(OPS.output_projection, (leaf(0, 2, 5, 8), leaf(6, 16)), test_utils=quick)


class Layer(nn.Module):
    """The operators around an attention that is a mean, with all gradients."""

    def __init__(self, ours: bool) -> None:
        super().__init__()
        self.ours = ours
        self.weight, self.merge = nn.Parameter(random(32, 6) / 3), nn.Parameter(random(6, 16) / 4)
        self.bias, self.norm = nn.Parameter(random(32)), nn.Parameter(1 + random(6) / 9)

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        """[B, S, 6] -> [B, S, 6]."""
        project = qkv_projection if self.ours else projected
        cos, sin = angles.cos(), angles.sin()
        options = {"norm_weight": self.norm, "cos": cos, "sin": sin}
        q, k, v = project(x, self.weight, self.bias, num_heads=2, num_kv_heads=1, **options)
        turn = rope if self.ours else rotated
        attn = turn(q, cos, sin, interleaved=True) * k + v
        if not self.ours:
            return x + attn.transpose(1, 2).flatten(2) @ self.merge.mT
        return output_projection(attn, self.merge, residual=x)


@pytest.mark.slow
def test_compiles_as_one_graph_with_gradients_for_all_lengths() -> None:
    torch._dynamo.reset()
    ours, theirs = Layer(True), Layer(False)
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager", dynamic=True)
    for batch, length in ((2, 5), (3, 9), (4, 130)):
        x, angles = random(batch, length, 6), random(length, 4)
        found, expected = compiled(x, angles), theirs(x, angles)
        assert torch.allclose(found, expected, atol=1e-4)
        mine = torch.autograd.grad(found.square().mean(), list(ours.parameters()))
        true = torch.autograd.grad(expected.square().mean(), list(theirs.parameters()))
        assert all(torch.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in zip(mine, true))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    torch._dynamo.reset()


@pytest.mark.slow
def test_exports_with_a_dynamic_length() -> None:
    length = torch.export.Dim("length", min=2, max=512)
    example = (random(2, 5, 6), random(5, 4))
    shapes = ({1: length}, {0: length})
    program = torch.export.export(Layer(True), example, dynamic_shapes=shapes)
    called = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert {"nki_lib.qkv_projection.default", "nki_lib.output_projection.default"} <= called
    other = (random(2, 77, 6), random(77, 4))
    assert torch.allclose(program.module()(*other), Layer(False)(*other), atol=1e-4)


def test_meta_tensors() -> None:
    def meta(*shape: int) -> Tensor:
        return torch.empty(*shape, device="meta", dtype=torch.bfloat16)

    turned = rope(meta(2, 5, 3, 8).transpose(1, 2), meta(5, 4), meta(5, 4))
    assert turned.shape == (2, 3, 5, 8) and turned.is_contiguous() and turned.device.type == "meta"
    q, k, v = qkv_projection(meta(2, 5, 6), meta(32, 6), num_heads=2, num_kv_heads=1)
    assert q.shape == (2, 2, 5, 8) and k.shape == v.shape == (2, 1, 5, 8) and q.is_contiguous()
    assert output_projection(q, meta(6, 16)).shape == (2, 5, 6)


X, W = (2, 5, 6), (32, 6)
HEADS = {"num_heads": 2, "num_kv_heads": 1}
WRONG: dict[str, tuple[type[Exception], str, Any]] = {
    "rope: rank": (errors.ShapeError, "`x`", lambda r: rope(r(3, 5, 8), r(5, 8), r(5, 8))),
    "rope: float64": (errors.DtypeError, "`x`", lambda r: rope(r(1, 3, 5, 8).double(), r(5, 8), r(5, 8))),
    "rope: width": (errors.ShapeError, "`cos`", lambda r: rope(r(1, 3, 5, 8), r(5, 6), r(5, 6))),
    "rope: length": (errors.ShapeError, "`cos`", lambda r: rope(r(1, 3, 5, 8), r(9, 8), r(9, 8))),
    "rope: batch": (errors.ShapeError, "`cos`", lambda r: rope(r(2, 3, 5, 8), r(1, 5, 8), r(1, 5, 8))),
    "rope: odd": (errors.ShapeError, "`cos`", lambda r: rope(r(1, 3, 5, 7), r(5, 7), r(5, 7))),
    "rope: tables": (errors.ShapeError, "`sin`", lambda r: rope(r(1, 3, 5, 8), r(5, 8), r(5, 4))),
    "rope: table types": (errors.DtypeError, "`sin`", lambda r: rope(r(1, 3, 5, 8), r(5, 8), r(5, 8).half())),
    "rope: wide": (errors.ShapeError, "`x`", lambda r: rope(r(1, 1, 1, 4096), r(1, 4096), r(1, 4096))),
    "qkv: rank": (errors.ShapeError, "`x`", lambda r: qkv_projection(r(5, 6), r(*W), **HEADS)),
    "qkv: columns": (errors.ShapeError, "`weight`", lambda r: qkv_projection(r(*X), r(32, 7), **HEADS)),
    "qkv: rows": (errors.ShapeError, "`weight`", lambda r: qkv_projection(r(*X), r(30, 6), **HEADS)),
    "qkv: types": (errors.DtypeError, "`weight`", lambda r: qkv_projection(r(*X), r(*W).half(), **HEADS)),
    "qkv: bias": (errors.ShapeError, "`bias`", lambda r: qkv_projection(r(*X), r(*W), r(6), **HEADS)),
    "qkv: heads": (
        errors.ArgumentError,
        "`num_kv_heads`",
        lambda r: qkv_projection(r(*X), r(*W), num_heads=2, num_kv_heads=0),
    ),
    "qkv: norm": (
        errors.ShapeError,
        "`norm_weight`",
        lambda r: qkv_projection(r(*X), r(*W), norm_weight=r(8), **HEADS),
    ),
    "qkv: cos alone": (
        errors.ArgumentError,
        "`sin`",
        lambda r: qkv_projection(r(*X), r(*W), cos=r(5, 8), **HEADS),
    ),
    "qkv: wide heads": (
        errors.ShapeError,
        "512",
        lambda r: qkv_projection(r(*X), r(4 * 514, 6), cos=r(5, 514), sin=r(5, 514), **HEADS),
    ),
    "output: rank": (errors.ShapeError, "`attn`", lambda r: output_projection(r(2, 5, 16), r(6, 16))),
    "output: columns": (errors.ShapeError, "`weight`", lambda r: output_projection(r(2, 2, 5, 8), r(6, 8))),
    "output: bias": (
        errors.ShapeError,
        "`bias`",
        lambda r: output_projection(r(2, 2, 5, 8), r(6, 16), r(16)),
    ),
    "output: residual": (
        errors.ShapeError,
        "`residual`",
        lambda r: output_projection(r(2, 2, 5, 8), r(6, 16), None, r(1, 5, 6)),
    ),
    "output: residual type": (
        errors.DtypeError,
        "`residual`",
        lambda r: output_projection(r(2, 2, 5, 8), r(6, 16), None, r(2, 5, 6).bfloat16()),
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_name_the_argument(case: str) -> None:
    kind, named, make = WRONG[case]
    for device in ("cpu", "meta"):
        with pytest.raises(kind, match=named) as caught:
            make(lambda *shape: random(*shape).to(device))  # noqa: B023
        text = str(caught.value)
        assert case.split(":")[0] in text and "found:" in text and "allowed:" in text


def test_sparse_tensors_are_refused() -> None:
    sparse = random(6, 16).to_sparse()
    with pytest.raises(errors.ArgumentError, match="`weight`"):
        output_projection(random(2, 2, 5, 8), sparse)
    with pytest.raises(errors.ArgumentError, match="`norm_weight`"):
        qkv_projection(random(*X), random(*W), norm_weight=random(6).to_sparse(), **HEADS)
    with pytest.raises(errors.ArgumentError, match="`cos`"):
        rope(random(1, 1, 6, 16), sparse, random(6, 16))


def test_devices_are_not_mixed() -> None:
    with pytest.raises(errors.ArgumentError, match="`weight`"):
        output_projection(random(2, 2, 5, 8), random(6, 16).to("meta"))


@pytest.mark.parametrize("api", [rope_api, qkv_api, output_api])
def test_without_torch_the_front_door_says_what_to_install(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_HAS_TORCH", False)
    name = api.__name__.split(".")[-2]
    arguments = {"num_heads": 1, "num_kv_heads": 1} if name == "qkv_projection" else {}
    with pytest.raises(errors.MissingExtraError, match=r"open-nki\[torch\]"):
        getattr(api, name)(*[None] * (3 if name == "rope" else 2), **arguments)
