"""moe_decode as PyTorch sees it: schema, fakes, compile, export, gradients, programs, errors."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from nki import errors  # noqa: E402
from nki_lib.moe.moe_decode import api, op  # noqa: E402
from nki_lib.moe.moe_decode.api import moe_decode  # noqa: E402
from nki_lib.moe.operator import OPTIONS  # noqa: E402
from tests.nki_lib.moe_bounds import exact  # noqa: E402

OPS = torch.ops.nki_lib
T, E, K, H, I, SHARED = 6, 3, 2, 32, 40, 16  # noqa: E741
FP8 = torch.float8_e4m3fn


def random(*shape: int, scale: float = 1.0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))) * scale


def tensors(**changed: Any) -> dict[str, Any]:
    made = {
        "x": random(T, H),
        "gate_up": random(E, H, 2, I, scale=0.3),
        "down": random(E, I, H, scale=0.2),
        "weights": random(T, K).softmax(1),
        "indices": random(T, E).argsort(1)[:, :K],
    }
    return {**made, **changed}


def extras() -> dict[str, Tensor]:
    return {
        "gate_up_bias": random(E, 2, I),
        "down_bias": random(E, H),
        "shared_gate_up": random(H, 2, SHARED, scale=0.3),
        "shared_down": random(SHARED, H, scale=0.3),
        "shared_gate": random(T),
    }


def quantised() -> dict[str, Tensor]:
    return {
        "gate_up": random(E, H, 2, I).to(FP8),
        "down": random(E, I, H).to(FP8),
        "gate_up_scale": torch.ones(E, 2, I),
        "down_scale": torch.ones(E, H),
    }


def trained(arguments: dict[str, Any]) -> dict[str, Any]:
    """The same as leaves with gradients, but for the indices."""
    return {n: t if n == "indices" else t.detach().requires_grad_() for n, t in arguments.items()}


def test_schema() -> None:
    schema = str(OPS.moe_decode.default._schema)
    assert schema.startswith(
        "nki_lib::moe_decode(Tensor x, Tensor gate_up, Tensor down, Tensor weights, Tensor indices"
    )
    assert schema.endswith(f'{OPTIONS.replace("7.0", "7.")}, str style="auto") -> Tensor')


@pytest.mark.slow
def test_opcheck() -> None:
    torch.library.opcheck(OPS.moe_decode, tuple(trained(tensors()).values()))


def test_opcheck_of_options_and_of_nothing() -> None:
    quick = ("test_schema", "test_faketensor", "test_autograd_registration")
    options = {"style": "all", "first_expert": 1, "activation": "geglu"}
    plain = tuple(tensors().values())
    torch.library.opcheck(OPS.moe_decode, plain, {**extras(), **options}, test_utils=quick)
    torch.library.opcheck(
        OPS.moe_decode, (plain[0][:0], *plain[1:3], plain[3][:0], plain[4][:0]), test_utils=quick
    )
    views = tensors(x=random(H, T).mT, gate_up=random(2, H, E, I).permute(2, 1, 0, 3))
    torch.library.opcheck(OPS.moe_decode, tuple(views.values()), test_utils=quick)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_up, self.down = (nn.Parameter(tensors()[name]) for name in ("gate_up", "down"))

    def forward(self, x: Tensor, weights: Tensor, indices: Tensor) -> Tensor:
        return x + moe_decode(x.sin(), self.gate_up, self.down, weights, indices)


def batch(count: int) -> tuple[Tensor, ...]:
    return random(count, H), random(count, K).softmax(1), random(count, E).argsort(1)[:, :K]


def test_compile_and_export() -> None:
    layer = Layer()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    for count in (5, 9):
        inputs = batch(count)
        assert torch.equal(compiled(*inputs), layer(*inputs))
        compiled(*inputs).sum().backward()
    sizes = [{0: torch.export.Dim("tokens")}] * 3
    program = torch.export.export(layer, batch(4), dynamic_shapes=sizes)
    assert torch.equal(program.module()(*batch(7)), layer(*batch(7)))


def test_meta() -> None:
    arguments = {n: t.to("meta") for n, t in {**tensors(), **extras()}.items()}
    arguments["x"] = arguments["x"].mT.contiguous().mT
    found = moe_decode(**arguments)
    assert found.device.type == "meta" and found.shape == (T, H) and found.is_contiguous()


def test_gradients() -> None:
    """Those of moe_prefill; here against float64, with room for the roundings of a handful of products."""
    given = trained({**tensors(), **extras()})
    moe_decode(**given, activation="clamped_swiglu").square().sum().backward()
    wide = {n: t if n == "indices" else t.detach().double().requires_grad_() for n, t in given.items()}
    reference(wide).square().sum().backward()
    for name, tensor in given.items():
        if name != "indices":
            wanted = wide[name].grad
            assert torch.allclose(tensor.grad.double(), wanted, rtol=1e-4, atol=1e-5 * wanted.abs().max()), (
                name
            )


def reference(given: dict[str, Tensor]) -> Tensor:
    """The layer with clamped_swiglu, every expert for every token, in the dtype of the tensors."""

    def bent(g: Tensor, u: Tensor) -> Tensor:
        g = g.clamp(max=7.0)
        return (u.clamp(-7.0, 7.0) + 1) * g * torch.sigmoid(1.702 * g)

    gate, up = (torch.einsum("th,ehi->eti", given["x"], given["gate_up"][:, :, i]) for i in range(2))
    bias = given["gate_up_bias"][:, :, None]
    rows = bent(gate + bias[:, 0], up + bias[:, 1]) @ given["down"] + given["down_bias"][:, None]
    dense = torch.zeros(T, E, dtype=rows.dtype).scatter_add(1, given["indices"], given["weights"])
    shared = bent(*(given["x"] @ given["shared_gate_up"][:, i] for i in range(2))) @ given["shared_down"]
    return torch.einsum("te,eth->th", dense, rows) + shared * given["shared_gate"][:, None]


def test_no_gradient_through_quantised_weights() -> None:
    out = moe_decode(**tensors(x=random(T, H).requires_grad_(), **quantised()))
    with pytest.raises(errors.NoBackwardError, match="gate_up"):
        out.sum().backward()


def launches(monkeypatch: Any) -> list[tuple[Any, ...]]:
    """What the kernel is called with from now on."""
    found = []

    def noted(*arguments: Any) -> Any:
        found.append(arguments)
        return op.__dict__["original"](*arguments)

    monkeypatch.setattr(op, "original", op.kernel, raising=False)
    monkeypatch.setattr(op, "kernel", noted)
    return found


def test_few_sizes_and_no_copies_of_weights(monkeypatch: Any) -> None:
    """Five to eight tokens are one program; what fills up chooses nobody."""
    found, arguments = launches(monkeypatch), tensors()
    for count in (5, 6, 7):
        moe_decode(
            arguments["x"][:1].expand(count, H), arguments["gate_up"], arguments["down"], *batch(count)[1:]
        )
    assert {tuple(call[0].shape) for call in found} == {(8, H)}
    for call, count in zip(found, (5, 6, 7), strict=True):
        assert (call[4][count:] == -1).all() and call[4].dtype == torch.int32
        assert call[1].data_ptr() == arguments["gate_up"].data_ptr()
        assert call[2].data_ptr() == arguments["down"].data_ptr()


@pytest.mark.parametrize(
    ("count", "style", "chosen"), [(5, "auto", True), (15, "auto", False), (15, "chosen", True)]
)
def test_style(monkeypatch: Any, count: int, style: str, chosen: bool) -> None:
    found, (x, *routing) = launches(monkeypatch), batch(count)
    moe_decode(x, tensors()["gate_up"], tensors()["down"], *routing, style=style)
    assert [call[-1] for call in found] == [chosen]


def test_values_with_everything() -> None:
    arguments = {**tensors(), **extras()}
    wanted, bound = exact(**arguments)
    assert ((moe_decode(**arguments).double() - wanted).abs() <= bound).all()


WRONG: list[tuple[dict[str, Any], Any, str]] = [
    ({"x": random(T, H).int()}, errors.DtypeError, "x"),
    ({"x": random(T, H, 1)}, errors.ShapeError, "x"),
    ({"gate_up": random(E, H + 1, 2, I)}, errors.ShapeError, "gate_up"),
    ({"gate_up": random(E, H, 2, I).half()}, errors.DtypeError, "gate_up"),
    ({"down": random(E, I, H + 1)}, errors.ShapeError, "down"),
    ({"weights": random(T + 1, K)}, errors.ShapeError, "weights"),
    ({"indices": torch.zeros(T, K + 1).long()}, errors.ShapeError, "indices"),
    ({"indices": torch.zeros(T, K)}, errors.DtypeError, "indices"),
    ({"indices": torch.full((T, K), E)}, errors.BoundsError, "indices"),
    ({"indices": torch.full((T, K), -1)}, errors.BoundsError, "indices"),
    ({"gate_up_bias": random(E, I)}, errors.ShapeError, "gate_up_bias"),
    ({"down_bias": random(E, H).half()}, errors.DtypeError, "down_bias"),
    ({"down_scale": random(E, H)}, errors.ArgumentError, "down_scale"),
    ({**quantised(), "gate_up_scale": None}, errors.ArgumentError, "gate_up_scale"),
    ({"shared_down": random(SHARED, H)}, errors.ArgumentError, "shared_down"),
    ({**extras(), "shared_gate": random(T + 1)}, errors.ShapeError, "shared_gate"),
    ({"activation": "relu"}, errors.ArgumentError, "activation"),
    ({"activation": "clamped_swiglu", "limit": 0.0}, errors.ArgumentError, "limit"),
    ({"first_expert": -1}, errors.ArgumentError, "first_expert"),
    ({"style": "some"}, errors.ArgumentError, "style"),
    ({"x": random(T, H).to_sparse()}, errors.ArgumentError, "x"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "kind", "name"), WRONG, ids=lambda value: str(value)[:24])
def test_errors_name_the_argument(changed: dict[str, Any], kind: Any, name: str) -> None:
    with pytest.raises(kind, match=f"`{name}`"):
        moe_decode(**tensors(**changed))


def test_without_torch(monkeypatch: Any) -> None:
    monkeypatch.setattr(api, "_HAS_TORCH", False)
    with pytest.raises(errors.MissingExtraError, match="moe_decode"):
        moe_decode(**tensors())
