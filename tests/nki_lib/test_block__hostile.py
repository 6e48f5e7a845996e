"""What reductions, losses, lookups and experts do where callers are careless: each of these once went wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402

import nki_lib  # noqa: E402
from nki import errors  # noqa: E402

NAN, INF = float("nan"), float("inf")


def random(*shape: int, dtype: Any = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float32, device="cpu").to(dtype)


X, WEIGHT, TARGET = random(4, 8), random(9, 8), torch.tensor([1, 2, 3, 4])
EXPERTS: dict[str, Tensor] = {
    "x": random(3, 32),
    "gate_up": random(4, 32, 2, 32),
    "down": random(4, 32, 32),
    "weights": random(3, 2).abs(),
    "indices": torch.tensor([[0, 1], [1, 1], [3, 2]]),
}

CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "softmax": (nki_lib.softmax, {"x": X}),
    "cumsum": (nki_lib.cumsum, {"x": X}),
    "topk": (nki_lib.topk, {"x": X, "k": 2}),
    "router_topk": (nki_lib.router_topk, {"logits": X, "k": 2}),
    "sigmoid_router": (nki_lib.router_topk, {"logits": X, "k": 2, "score": "sigmoid"}),
    "cross_entropy": (nki_lib.cross_entropy, {"logits": X, "target": TARGET}),
    "linear_cross_entropy": (nki_lib.linear_cross_entropy, {"x": X, "weight": WEIGHT, "target": TARGET}),
    "embedding": (nki_lib.embedding, {"input": TARGET, "weight": WEIGHT}),
    "moe_decode": (nki_lib.moe_decode, EXPERTS),
    "moe_prefill": (nki_lib.moe_prefill, EXPERTS),
}
NOT_WHOLE = ("a", 1.0, True, 2**70, torch.tensor(1))
NOT_NUMBERS = ("a", True, 1e39, NAN, torch.tensor(0.5, requires_grad=True))
NOT_NAMES = (None, ["softmax"], "best", 1)
LOSS = {
    "ignore_index": (None, *NOT_WHOLE),
    "reduction": NOT_NAMES,
    "label_smoothing": (None, *NOT_NUMBERS),
    "softcap": (0.0, *NOT_NUMBERS),
    "z_loss": (None, *NOT_NUMBERS),
}
MOE = {
    "activation": NOT_NAMES,
    "alpha": (None, *NOT_NUMBERS),
    "limit": (None, *NOT_NUMBERS),
    "first_expert": (-1, *NOT_WHOLE),
}
WRONG: dict[str, dict[str, tuple[Any, ...]]] = {
    "softmax": {"dim": (None, 2, *NOT_WHOLE), "dtype": ("float32", torch.float64, 6)},
    "cumsum": {"dim": (None, *NOT_WHOLE), "dtype": ("int32", torch.int64), "reverse": (None, 1)},
    "topk": {
        "k": (None, -1, 9, *NOT_WHOLE),
        "dim": (None, *NOT_WHOLE),
        "largest": (None, 1),
        "sorted": (None,),
    },
    "router_topk": {
        "k": (None, 0, *NOT_WHOLE),
        "score": NOT_NAMES,
        "normalize": (None, 1),
        "return_losses": (None, 1),
        "scale": (None, *NOT_NUMBERS),
    },
    "sigmoid_router": {"groups": (2.0, "a", True), "topk_groups": (1.0, "a", True)},
    "cross_entropy": {**LOSS, "weight": ([1.0], torch.ones(8, requires_grad=True))},
    "linear_cross_entropy": LOSS,
    "embedding": {"padding_idx": (9, *NOT_WHOLE), "scale": NOT_NUMBERS},
    "moe_decode": {**MOE, "style": NOT_NAMES},
    "moe_prefill": MOE,
}


@pytest.mark.parametrize(
    ("call", "name", "value"),
    [
        pytest.param(call, name, value, id=f"{call}-{name}-{value}")
        for call, arguments in WRONG.items()
        for name, values in arguments.items()
        for value in values
    ],
)
def test_an_argument_of_a_wrong_kind_is_named(call: str, name: str, value: Any) -> None:
    function, given = CALLS[call]
    with pytest.raises(errors.NkiError, match=f"`{name}`") as found:
        function(**{**given, name: value})
    assert "allowed:" in str(found.value)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (call, name)
        for call, (_, given) in CALLS.items()
        for name, t in given.items()
        if isinstance(t, Tensor)
    ],
)
def test_a_tensor_left_out_is_named(call: str, name: str) -> None:
    function, given = CALLS[call]
    for value in (None, 3.0):
        with pytest.raises(errors.ArgumentError, match=f"`{name}`"):
            function(**{**given, name: value})


def test_the_operator_refuses_to_train_class_weights() -> None:
    weight, logits = torch.ones(8, requires_grad=True), X.clone().requires_grad_()
    loss, _ = torch.ops.nki_lib.cross_entropy(logits, TARGET, weight)
    with pytest.raises(errors.NoBackwardError, match="`weight`"):
        loss.sum().backward()


# ---- the defaults of PyTorch --------------------------------------------------------------------------------------


@pytest.fixture(params=[torch.bfloat16, torch.float16, torch.float64, "meta"], ids=str)
def other_defaults(request: Any) -> Iterator[None]:
    if request.param == "meta":
        with torch.device("meta"):
            yield
        return
    before = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield
    torch.set_default_dtype(before)


def train(function: Callable[..., Any], given: dict[str, Any], **options: Any) -> list[Tensor]:
    """Results and gradients."""
    leaves = {
        name: t.clone().requires_grad_(t.is_floating_point()) if isinstance(t, Tensor) else t
        for name, t in given.items()
    }
    found = function(**leaves, **options)
    results = [found] if isinstance(found, Tensor) else list(found)
    sum(r.float().square().sum() for r in results if r.requires_grad).backward()
    return results + [t.grad for t in leaves.values() if isinstance(t, Tensor) and t.grad is not None]


SHARED = {"shared_gate_up": random(32, 2, 8), "shared_down": random(8, 32)}
OPTIONS: dict[str, dict[str, Any]] = {
    "router_topk": {"return_losses": True},
    "sigmoid_router": {"return_losses": True, "bias": random(8)},
    "cross_entropy": {"weight": random(8).abs(), "label_smoothing": 0.1},
    "embedding": {"padding_idx": 0, "scale": 2.0},
    "moe_prefill": SHARED,
}
EXPECTED = {call: train(*CALLS[call], **OPTIONS.get(call, {})) for call in CALLS}


@pytest.mark.usefixtures("other_defaults")
@pytest.mark.parametrize("call", CALLS)
def test_the_default_dtype_and_device_change_nothing(call: str) -> None:
    for mine, expected in zip(train(*CALLS[call], **OPTIONS.get(call, {})), EXPECTED[call], strict=True):
        assert mine.dtype == expected.dtype and torch.equal(mine, expected)


# ---- torch.autocast -----------------------------------------------------------------------------------------------


def test_under_autocast_the_factors_of_products_are_cast() -> None:
    x, target = random(4, 8, dtype=torch.bfloat16), TARGET
    plain = nki_lib.linear_cross_entropy(x, WEIGHT.bfloat16(), target)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(nki_lib.linear_cross_entropy(x, WEIGHT, target), plain)
        with pytest.raises(errors.DtypeError, match="`weight`"):
            nki_lib.linear_cross_entropy(x, WEIGHT.double(), target)


@pytest.mark.parametrize("function", [nki_lib.moe_decode, nki_lib.moe_prefill])
def test_under_autocast_experts_are_cast(function: Callable[..., Tensor]) -> None:
    biases = {"gate_up_bias": random(4, 2, 32), "down_bias": random(4, 32)}
    cast = {name: t.bfloat16() for name, t in {**EXPERTS, **biases, **SHARED}.items()}
    cast |= {"weights": EXPERTS["weights"], "indices": EXPERTS["indices"]}
    mixed = {**EXPERTS, **biases, **SHARED, "x": cast["x"]}
    expected = train(function, cast)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = train(function, mixed)
    assert torch.equal(found[0], expected[0])
    for mine, true in zip(found[1:], expected[1:], strict=True):
        assert torch.equal(mine.bfloat16(), true.bfloat16())


def test_under_autocast_weights_of_8_bits_stay() -> None:
    narrow = {name: EXPERTS[name].to(torch.float8_e5m2) for name in ("gate_up", "down")}
    scales = {"gate_up_scale": random(4, 2, 32).abs(), "down_scale": random(4, 32).abs()}
    given = {**EXPERTS, **narrow, **scales}
    expected = nki_lib.moe_decode(**{**given, "x": EXPERTS["x"].bfloat16()})
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(nki_lib.moe_decode(**given), expected)


# ---- values -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("size", [1, 8, 20])
def test_gradients_of_the_fused_loss_are_no_worse_than_those_of_its_parts(dtype: Any, size: int) -> None:
    """Of models that are sure of their targets: there the slopes are small differences of probabilities.

    Errors are compared with those of `matmul` and `cross_entropy`, which round the logits; a tenth is left for chance.
    """
    x, weight = random(64, 64, dtype=dtype), (random(500, 64) * size / 8).to(dtype)
    target = (x.double() @ weight.double().mT).argmax(1)

    def error(loss: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        def gradients(run: Callable[[Tensor, Tensor], Tensor], *tensors: Tensor) -> list[Tensor]:
            leaves = [t.clone().requires_grad_() for t in tensors]
            run(*leaves).backward()
            return [leaf.grad.double() for leaf in leaves]

        truth = gradients(lambda a, b: cross_entropy(a @ b.mT, target), x.double(), weight.double())
        found = gradients(loss, x, weight)
        return torch.stack([(mine - true).norm() / true.norm() for mine, true in zip(found, truth)])

    parts = error(lambda a, b: nki_lib.cross_entropy(nki_lib.matmul(a, b.mT), target))
    fused = error(lambda a, b: nki_lib.linear_cross_entropy(a, b, target))
    assert (fused <= 1.1 * parts).all()


@pytest.mark.parametrize("value", [INF, -INF, NAN])
def test_the_z_loss_of_a_row_beyond_numbers_is_that_of_logsumexp(value: float) -> None:
    logits = X.clone()
    logits[1, 2] = value
    z_loss = nki_lib.router_topk(logits, 2, return_losses=True)[3]
    torch.testing.assert_close(z_loss, logits.logsumexp(-1).square().mean(), equal_nan=True)


def test_an_option_that_is_traced_compiles() -> None:
    torch._dynamo.reset()

    def run(x: Tensor, scale: float, k: int) -> Tensor:
        weights, _ = nki_lib.router_topk(x, k, scale=scale)
        rows = nki_lib.embedding(TARGET, WEIGHT, scale=scale)
        return weights.sum() + rows.sum() + nki_lib.cross_entropy(x, TARGET, softcap=scale)

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager", dynamic=True)
    for scale, k in ((2.0, 2), (3.5, 2), (3.5, 3)):
        torch.testing.assert_close(compiled(X, scale, k), run(X, scale, k))
    torch._dynamo.reset()
