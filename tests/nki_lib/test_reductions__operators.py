"""`softmax`, `cumsum`, `topk` and `router_topk` as PyTorch sees them: schema, fakes, compile, export, errors."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from nki import errors  # noqa: E402
from nki_lib.moe.router_topk import api as router_api  # noqa: E402
from nki_lib.moe.router_topk.api import router_topk  # noqa: E402
from nki_lib.moe.router_topk.kernel import router_topk as router_kernel  # noqa: E402
from nki_lib.reduction.cumsum import api as cumsum_api  # noqa: E402
from nki_lib.reduction.cumsum.api import cumsum  # noqa: E402
from nki_lib.reduction.softmax import api as softmax_api  # noqa: E402
from nki_lib.reduction.softmax.api import softmax  # noqa: E402
from nki_lib.reduction.softmax.kernel import softmax as softmax_kernel  # noqa: E402
from nki_lib.reduction.topk import api as topk_api  # noqa: E402
from nki_lib.reduction.topk.api import topk  # noqa: E402

OPS = torch.ops.nki_lib
SCHEMAS = {
    "softmax": "(Tensor x, int dim=-1, *, ScalarType? dtype=None) -> Tensor",
    "softmax_backward": "(Tensor y, Tensor grad, int dim, ScalarType dtype) -> Tensor",
    "cumsum": "(Tensor x, int dim=-1, *, ScalarType? dtype=None, bool reverse=False) -> Tensor",
    "topk": "(Tensor x, int k, int dim=-1, *, bool largest=True) -> (Tensor, Tensor)",
    "router_topk": "(Tensor logits, int k, Tensor? bias=None, *, str score, bool normalize, int? groups, "
    "int? topk_groups, float scale, bool return_losses) -> (Tensor, Tensor, Tensor, Tensor)",
}
ROUTING = {
    "score": "sigmoid",
    "normalize": True,
    "groups": 2,
    "topk_groups": 1,
    "scale": 2.0,
    "return_losses": True,
}


def random(*shape: int, dtype: Any = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


@pytest.mark.parametrize("name", SCHEMAS)
def test_schema(name: str) -> None:
    assert str(getattr(OPS, name).default._schema) == f"nki_lib::{name}{SCHEMAS[name]}"


@pytest.mark.slow
def test_opcheck() -> None:
    def leaf(*shape: int, dtype: Any = torch.float32) -> Tensor:
        return random(*shape, dtype=dtype).requires_grad_()

    quick = ("test_schema", "test_faketensor")
    torch.library.opcheck(OPS.softmax, (leaf(2, 5, 3), 1))
    torch.library.opcheck(OPS.softmax_backward, (leaf(2, 5), leaf(2, 5), 1, torch.float32))
    torch.library.opcheck(OPS.cumsum, (leaf(2, 5, 3), 1), {"reverse": True})
    torch.library.opcheck(OPS.topk, (leaf(2, 5, 3), 2, 1), {"largest": False})
    torch.library.opcheck(OPS.router_topk, (leaf(3, 8), 2, random(8)), ROUTING)
    for x in (random(0, 4), random(4, 0), random(3, 70, 65).mT, torch.tensor(1.0)):
        half = {"dtype": torch.bfloat16}
        torch.library.opcheck(OPS.softmax, (x, 0), half, test_utils=quick)
        torch.library.opcheck(OPS.cumsum, (x, 0), half, test_utils=quick)
        torch.library.opcheck(OPS.topk, (x, min(x.shape[0], 2) if x.dim() else 1, 0), test_utils=quick)
    torch.library.opcheck(
        OPS.router_topk, (random(0, 8), 2), {**ROUTING, "groups": None, "topk_groups": None}
    )


class Gate(nn.Module):
    """Everything in a row, ours or PyTorch's."""

    def __init__(self, ours: bool) -> None:
        super().__init__()
        self.ours = ours
        self.weight = nn.Parameter(random(12, 16) / 3)

    def forward(self, x: Tensor) -> Tensor:
        """[T, 12] -> [T, 4]."""
        logits = x @ self.weight
        if self.ours:
            weights, _, balance, z = router_topk(logits, 4, return_losses=True)
            sums, best = cumsum(softmax(logits, 0), 1), topk(logits, 4, 1)[0]
        else:
            chosen, indices = logits.softmax(1).topk(4)
            weights = chosen / chosen.sum(1, keepdim=True)
            tokens = torch.zeros_like(logits).scatter(1, indices, 1.0).mean(0)
            balance, z = 16 * (tokens * logits.softmax(1).mean(0)).sum(), logits.logsumexp(1).square().mean()
            sums, best = logits.softmax(0).cumsum(1), logits.topk(4).values
        return weights * best + sums[:, :4] + balance + z


@pytest.mark.slow
def test_compiles_as_one_graph_with_gradients_for_all_lengths() -> None:
    torch._dynamo.reset()
    ours, theirs = Gate(True), Gate(False)
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager", dynamic=True)
    for tokens in (5, 9, 130):
        x = random(tokens, 12)
        found, expected = compiled(x), theirs(x)
        assert torch.allclose(found, expected, atol=1e-5)
        (mine,) = torch.autograd.grad(found.square().mean(), ours.weight)
        (true,) = torch.autograd.grad(expected.square().mean(), theirs.weight)
        assert torch.allclose(mine, true, rtol=1e-4, atol=1e-5)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    torch._dynamo.reset()


@pytest.mark.slow
def test_exports_with_a_dynamic_length() -> None:
    tokens = torch.export.Dim("tokens", min=2, max=4096)
    program = torch.export.export(Gate(True), (random(5, 12),), dynamic_shapes=({0: tokens},))
    called = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert {f"nki_lib.{name}.default" for name in ("softmax", "cumsum", "topk", "router_topk")} <= called
    other = random(77, 12)
    assert torch.allclose(program.module()(other), Gate(False)(other), atol=1e-5)


def test_meta_tensors() -> None:
    x = torch.empty(2, 5, 3, device="meta", dtype=torch.bfloat16).mT
    for function in (softmax, cumsum):
        result = function(x, 1, dtype=torch.float32)
        assert result.shape == x.shape and result.is_contiguous() and result.dtype == torch.float32
    values, indices = topk(x, 2, 1)
    assert (
        values.shape == indices.shape == (2, 2, 5) and values.is_contiguous() and indices.dtype == torch.int64
    )
    weights, indices, balance, z = router_topk(x[0], 2, return_losses=True)
    assert weights.shape == indices.shape == (3, 2) and weights.dtype == torch.bfloat16
    assert balance.shape == z.shape == () and balance.dtype == torch.float32 and balance.device.type == "meta"


def test_lengths_share_programs() -> None:
    """Numbers of rows between two sizes run the same program: nothing is staged again."""
    for tokens in (129, 140, 200, 256):
        softmax(random(tokens, 11))
        router_topk(random(tokens, 8), 2, return_losses=True)
        if tokens == 129:
            staged = [len(kernel._cache) for kernel in (softmax_kernel, router_kernel)]
    assert [len(kernel._cache) for kernel in (softmax_kernel, router_kernel)] == staged


WRONG: dict[str, tuple[type[Exception], str, Any]] = {
    "softmax: float64": (errors.DtypeError, "`x`", lambda r: softmax(r(3).double())),
    "softmax: integers": (errors.DtypeError, "`x`", lambda r: softmax(r(3).int())),
    "softmax: dim": (errors.ArgumentError, "`dim`", lambda r: softmax(r(3, 4), 2)),
    "softmax: dtype": (errors.DtypeError, "`dtype`", lambda r: softmax(r(3), dtype=torch.int32)),
    "softmax: gradient": (
        errors.ShapeError,
        "`grad`",
        lambda r: OPS.softmax_backward(r(3), r(4), 0, torch.float32),
    ),
    "softmax: gradient type": (
        errors.DtypeError,
        "`grad`",
        lambda r: OPS.softmax_backward(r(3), r(3).half(), 0, torch.float32),
    ),
    "cumsum: int64": (errors.DtypeError, "torch.int32", lambda r: cumsum(r(3).long())),
    "cumsum: dim": (errors.ArgumentError, "`dim`", lambda r: cumsum(r(3, 4), -3)),
    "cumsum: dtype": (errors.DtypeError, "`dtype`", lambda r: cumsum(r(3), dtype=torch.int64)),
    "topk: integers": (errors.DtypeError, "`x`", lambda r: topk(r(3).int(), 1)),
    "topk: k": (errors.ArgumentError, "`k`", lambda r: topk(r(3, 4), 4, 0)),
    "topk: negative k": (errors.ArgumentError, "`k`", lambda r: topk(r(3, 4), -1)),
    "topk: large k": (errors.ArgumentError, "2048", lambda r: topk(r(1, 3000), 2049)),
    "topk: dim": (errors.ArgumentError, "`dim`", lambda r: topk(r(3, 4), 1, 5)),
    "router_topk: rank": (errors.ShapeError, "`logits`", lambda r: router_topk(r(8), 2)),
    "router_topk: float64": (errors.DtypeError, "`logits`", lambda r: router_topk(r(3, 8).double(), 2)),
    "router_topk: experts": (errors.ShapeError, "`logits`", lambda r: router_topk(r(3, 513), 2)),
    "router_topk: k": (errors.ArgumentError, "`k`", lambda r: router_topk(r(3, 8), 9)),
    "router_topk: large k": (errors.ArgumentError, "`k`", lambda r: router_topk(r(3, 64), 33)),
    "router_topk: score": (errors.ArgumentError, "`score`", lambda r: router_topk(r(3, 8), 2, score="relu")),
    "router_topk: bias": (errors.ArgumentError, "`bias`", lambda r: router_topk(r(3, 8), 2, bias=r(8))),
    "router_topk: bias shape": (
        errors.ShapeError,
        "`bias`",
        lambda r: router_topk(r(3, 8), 2, score="sigmoid", bias=r(7)),
    ),
    "router_topk: bias type": (
        errors.DtypeError,
        "`bias`",
        lambda r: router_topk(r(3, 8), 2, score="sigmoid", bias=r(8).half()),
    ),
    "router_topk: groups of softmax": (
        errors.ArgumentError,
        "`groups`",
        lambda r: router_topk(r(3, 8), 2, groups=2, topk_groups=1),
    ),
    "router_topk: groups alone": (
        errors.ArgumentError,
        "`topk_groups`",
        lambda r: router_topk(r(3, 8), 2, score="sigmoid", groups=2),
    ),
    "router_topk: kept groups alone": (
        errors.ArgumentError,
        "`groups`",
        lambda r: router_topk(r(3, 8), 2, score="sigmoid", topk_groups=2),
    ),
    "router_topk: uneven groups": (
        errors.ArgumentError,
        "`groups`",
        lambda r: router_topk(r(3, 8), 2, score="sigmoid", groups=3, topk_groups=1),
    ),
    "router_topk: groups of one": (
        errors.ArgumentError,
        "`groups`",
        lambda r: router_topk(r(3, 8), 2, score="sigmoid", groups=8, topk_groups=4),
    ),
    "router_topk: kept groups": (
        errors.ArgumentError,
        "`topk_groups`",
        lambda r: router_topk(r(3, 8), 2, score="sigmoid", groups=2, topk_groups=3),
    ),
    "router_topk: too few experts": (
        errors.ArgumentError,
        "`k`",
        lambda r: router_topk(r(3, 8), 5, score="sigmoid", groups=2, topk_groups=1),
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


def test_sparse_tensors_and_mixed_devices_are_refused() -> None:
    sparse = random(3, 8).to_sparse()
    for call in (softmax, cumsum, lambda x: topk(x, 1)):
        with pytest.raises(errors.ArgumentError, match="`x`"):
            call(sparse)
    with pytest.raises(errors.ArgumentError, match="`logits`"):
        router_topk(sparse, 1)
    with pytest.raises(errors.ArgumentError, match="`bias`"):
        router_topk(random(3, 8), 1, score="sigmoid", bias=random(8).to("meta"))


@pytest.mark.parametrize("api", [softmax_api, cumsum_api, topk_api, router_api])
def test_without_torch_the_front_door_says_what_to_install(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_HAS_TORCH", False)
    name = api.__name__.split(".")[-2]
    with pytest.raises(errors.MissingExtraError, match=r"open-nki\[torch\]"):
        getattr(api, name)(*[None] * (2 if "topk" in name else 1))
