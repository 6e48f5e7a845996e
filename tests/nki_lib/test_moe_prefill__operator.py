"""moe_prefill as PyTorch sees it: schema, fakes, compile, export, gradients, errors."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from nki import errors  # noqa: E402
from nki_lib.moe.activations import ACTIVATIONS  # noqa: E402
from nki_lib.moe.arguments import Experts  # noqa: E402
from nki_lib.moe.moe_prefill import api  # noqa: E402
from nki_lib.moe.moe_prefill.api import moe_prefill  # noqa: E402
from nki_lib.moe.reference import expert_outputs  # noqa: E402

OPS = torch.ops.nki_lib
T, E, K, H, WIDTH, SHARED = 12, 3, 2, 32, 40, 16
UNIT = 2.0**-24
FP8 = torch.float8_e4m3fn


def random(*shape: int, scale: float = 1.0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))) * scale


def tensors(**changed: Any) -> dict[str, Any]:
    made = {
        "x": random(T, H),
        "gate_up": random(E, H, 2, WIDTH, scale=0.3),
        "down": random(E, WIDTH, H, scale=0.2),
        "weights": random(T, K).softmax(1),
        "indices": random(T, E).argsort(1)[:, :K],
    }
    return {**made, **changed}


def extras() -> dict[str, Tensor]:
    return {
        "gate_up_bias": random(E, 2, WIDTH),
        "down_bias": random(E, H),
        "shared_gate_up": random(H, 2, SHARED, scale=0.3),
        "shared_down": random(SHARED, H, scale=0.3),
        "shared_gate": random(T),
    }


def trained(arguments: dict[str, Any], dtype: Any = torch.float32) -> dict[str, Any]:
    """The same as leaves with gradients, but for the indices."""
    return {n: t if n == "indices" else t.detach().to(dtype).requires_grad_() for n, t in arguments.items()}


def reference(arguments: dict[str, Any], *how: Any) -> Tensor:
    rest = dict(arguments)
    x, weights, indices = (rest.pop(name) for name in ("x", "weights", "indices"))
    return expert_outputs(x, Experts(**rest), weights, indices, *how)


def test_schema() -> None:
    assert str(OPS.moe_prefill.default._schema) == (
        "nki_lib::moe_prefill(Tensor x, Tensor gate_up, Tensor down, Tensor weights, Tensor indices, "
        "Tensor? gate_up_bias=None, Tensor? down_bias=None, Tensor? gate_up_scale=None, "
        "Tensor? down_scale=None, Tensor? shared_gate_up=None, Tensor? shared_down=None, "
        'Tensor? shared_gate=None, *, str activation="swiglu", float alpha=1.702, float limit=7., '
        "int? first_expert=None) -> Tensor"
    )


@pytest.mark.slow
def test_opcheck() -> None:
    torch.library.opcheck(OPS.moe_prefill, tuple(trained(tensors()).values()))
    quick = ("test_schema", "test_faketensor")
    torch.library.opcheck(
        OPS.moe_prefill, tuple(tensors().values()), {**extras(), "activation": "geglu"}, test_utils=quick
    )
    torch.library.opcheck(
        OPS.moe_prefill_backward, (random(T, H), *tensors().values()), extras(), test_utils=quick
    )


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients(activation: str) -> None:
    """In float32, off by no more than 64 sqrt(n) u of the largest of their kind, for sums of up to n terms."""
    found, wanted = trained({**tensors(), **extras()}), trained({**tensors(), **extras()}, torch.float64)
    grad = random(T, H)
    moe_prefill(**found, activation=activation, limit=1.2).backward(grad)
    reference(wanted, activation, 1.702, 1.2).backward(grad.double())
    for name in found:
        if name == "indices":
            continue
        exact = wanted[name].grad
        most = 64 * max(H, WIDTH, T) ** 0.5 * UNIT * exact.abs().max()
        assert found[name].grad.dtype == torch.float32 and found[name].grad.shape == exact.shape
        assert (found[name].grad - exact).abs().max() <= most, name


def test_gradients_of_a_slice_and_of_few() -> None:
    arguments = tensors(indices=torch.tensor([[1, 1], [2, 0]]).repeat(T // 2, 1))
    arguments["gate_up"].requires_grad_()
    whole = moe_prefill(**arguments)
    (of_whole,) = torch.autograd.grad(whole.sum(), arguments["gate_up"])
    part = {name: arguments[name][1:].detach().requires_grad_() for name in ("gate_up", "down")}
    moe_prefill(**{**arguments, **part}, first_expert=1).sum().backward()
    assert torch.allclose(part["gate_up"].grad, of_whole[1:], atol=1e-5)
    assert part["down"].grad.abs().sum() > 0
    assert moe_prefill(**{**tensors(x=random(T, H).requires_grad_(), weights=torch.rand(T, K))}).requires_grad


class Layer(nn.Module):
    """A residual layer of experts."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_up, self.down = (nn.Parameter(tensors()[name]) for name in ("gate_up", "down"))

    def forward(self, x: Tensor, weights: Tensor, indices: Tensor) -> Tensor:
        return x + moe_prefill(x.sin(), self.gate_up, self.down, weights, indices)


def batch(count: int) -> tuple[Tensor, ...]:
    return random(count, H), random(count, K).softmax(1), random(count, E).argsort(1)[:, :K]


def test_compile_and_export() -> None:
    layer = Layer()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    for count in (5, 9):
        inputs = batch(count)
        wanted = layer(*inputs)
        assert torch.equal(compiled(*inputs), wanted)
        compiled(*inputs).sum().backward()
    sizes = [{0: torch.export.Dim("tokens")}] * 3
    program = torch.export.export(layer, batch(4), dynamic_shapes=sizes)
    assert torch.equal(program.module()(*batch(7)), layer(*batch(7)))


def test_meta() -> None:
    arguments = {n: t.to("meta") for n, t in {**tensors(), **extras()}.items()}
    arguments["x"] = arguments["x"].mT.contiguous().mT
    found = moe_prefill(**arguments)
    assert found.device.type == "meta" and found.shape == (T, H) and found.is_contiguous()


def test_few_programs(monkeypatch: Any) -> None:
    """One for all numbers of tokens from 129 to 256."""
    from nki_lib.moe.moe_prefill.op import kernel

    staged = []
    original = kernel.func
    monkeypatch.setattr(
        type(kernel), "_compiled", _counting(type(kernel)._compiled, staged, kernel), raising=True
    )
    for count in (130, 200, 256):
        moe_prefill(tensors()["x"][:1].expand(count, H), *list(tensors().values())[1:3], *batch(count)[1:])
    assert kernel.func is original and len({id(program) for program in staged}) == 1


def _counting(method: Any, staged: list[Any], wanted: Any) -> Any:
    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = method(self, *args, **kwargs)
        if self is wanted:
            staged.append(found)
        return found

    return counted


NARROW = random(E, H, 2, WIDTH).to(FP8), random(E, WIDTH, H).to(FP8)
WRONG: list[tuple[dict[str, Any], Any, str]] = [
    ({"x": random(T, H).int()}, errors.DtypeError, "x"),
    ({"x": random(T, H, 1)}, errors.ShapeError, "x"),
    ({"gate_up": random(E, H + 1, 2, WIDTH)}, errors.ShapeError, "gate_up"),
    ({"gate_up": random(E, H, 2, WIDTH).half()}, errors.DtypeError, "gate_up"),
    ({"down": random(E, WIDTH, H + 1)}, errors.ShapeError, "down"),
    ({"down": random(E, WIDTH, H).half()}, errors.DtypeError, "down"),
    ({"weights": random(T + 1, K)}, errors.ShapeError, "weights"),
    ({"indices": torch.zeros(T, K + 1).long()}, errors.ShapeError, "indices"),
    ({"indices": torch.zeros(T, K)}, errors.DtypeError, "indices"),
    ({"indices": torch.full((T, K), E)}, errors.BoundsError, "indices"),
    ({"indices": torch.full((T, K), -1)}, errors.BoundsError, "indices"),
    ({"gate_up_bias": random(E, WIDTH)}, errors.ShapeError, "gate_up_bias"),
    ({"down_bias": random(E, H).half()}, errors.DtypeError, "down_bias"),
    ({"down_scale": random(E, H)}, errors.ArgumentError, "down_scale"),
    (dict(zip(("gate_up", "down"), NARROW, strict=True)), errors.ArgumentError, "gate_up_scale"),
    ({"shared_down": random(SHARED, H)}, errors.ArgumentError, "shared_down"),
    ({"shared_gate": random(T)}, errors.ArgumentError, "shared_gate"),
    ({**extras(), "shared_gate": random(T + 1)}, errors.ShapeError, "shared_gate"),
    ({"activation": "relu"}, errors.ArgumentError, "activation"),
    ({"activation": "clamped_swiglu", "limit": 0.0}, errors.ArgumentError, "limit"),
    ({"first_expert": -1}, errors.ArgumentError, "first_expert"),
    ({"x": random(T, H).to_sparse()}, errors.ArgumentError, "x"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "kind", "name"), WRONG, ids=lambda value: str(value)[:24])
def test_errors_name_the_argument(changed: dict[str, Any], kind: Any, name: str) -> None:
    with pytest.raises(kind, match=f"`{name}`"):
        moe_prefill(**tensors(**changed))


def test_mx_shapes() -> None:
    mx = {
        "gate_up": torch.zeros(E, H // 2, 2, WIDTH, dtype=torch.uint8),
        "down": torch.zeros(E, WIDTH // 2, H, dtype=torch.uint8),
        "gate_up_scale": torch.zeros(E, 1, 2, WIDTH, dtype=torch.uint8),
        "down_scale": torch.zeros(E, 2, H, dtype=torch.uint8),
    }
    with pytest.raises(errors.ShapeError, match="`down`"):
        moe_prefill(**tensors(**mx))


def test_no_gradient_through_quantised_weights() -> None:
    quantised = {
        "gate_up": NARROW[0],
        "down": NARROW[1],
        "gate_up_scale": torch.ones(E, 2, WIDTH),
        "down_scale": torch.ones(E, H),
    }
    out = moe_prefill(**tensors(x=random(T, H).requires_grad_(), **quantised))
    with pytest.raises(errors.NoBackwardError, match="gate_up"):
        out.sum().backward()


def test_without_torch(monkeypatch: Any) -> None:
    monkeypatch.setattr(api, "_HAS_TORCH", False)
    with pytest.raises(errors.MissingExtraError, match="moe_prefill"):
        moe_prefill(**tensors())
