"""Values and gradients of the MLP: against float64, over shapes, layouts, types, activations and what is around it.

How far it may be off, with u = 2^-24 and w the unit roundoff of the tensors' type: every product of K terms is off by
(4 sqrt(K) + 8) u of its magnitude, the sum of |terms|, and by w of it where a factor was rounded to the type before.
An activation passes an error on at most 1.2 times (its slope), and adds 16 u of what it returns; relu2 is drawn with
inputs for which its slope, twice the input, is taken as it is.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn import functional  # noqa: E402

from nki_lib.linear.mlp.activations import FUNCTIONS  # noqa: E402
from nki_lib.linear.mlp.api import mlp  # noqa: E402
from nki_lib.linear.mlp.kernel import mlp as kernel  # noqa: E402
from tests.nki_lib.format_bounds import DTYPES, UNIT, stored, wide  # noqa: E402
from tests.nki_lib.norm_bounds import layer_bound, layer_exact, rms_bound, rms_exact  # noqa: E402

EPS = 1e-5
ACT: dict[str, Any] = {
    "silu": lambda x: x / (1 + torch.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1 + torch.erf(x / 2**0.5)),
    "gelu_tanh": lambda x: 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))),
    "relu": lambda x: x.clamp(min=0),
    "relu2": lambda x: x.clamp(min=0) ** 2,
}


def random(*shape: int, dtype: Any = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def call(
    shape: tuple[int, ...] = (2, 5, 40),
    hidden: int = 30,
    dtype: Any = torch.float32,
    gate: bool = True,
    bias: bool = True,
    norm: str | None = "rms",
    residual: bool = True,
) -> tuple[list[Tensor], dict[str, Any]]:
    """x, up, down, and the tensors that are passed by name."""
    width = shape[-1]
    x, up = random(*shape, dtype=dtype), (random(hidden, width) / max(width, 1) ** 0.5).to(dtype)
    down = (random(width, hidden) / max(hidden, 1) ** 0.5).to(dtype)
    named: dict[str, Any] = {}
    if gate:
        named["gate"] = up.flip(0).contiguous()
    if bias:
        named |= {"up_bias": random(hidden, dtype=dtype), "down_bias": random(width, dtype=dtype)}
    if bias and gate:
        named["gate_bias"] = random(hidden + 1, dtype=dtype)[1:]
    if norm is not None:
        named["norm_weight"] = random(width)
    if norm == "layer":
        named["norm_bias"] = random(width)
    if residual:
        named["residual"] = random(*shape, dtype=dtype)
    return [x, up, down], named


def product(rows: Tensor, error: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """rows weight^T + bias in float64, and how far it may be off if the rows are off by `error`."""
    magnitude = functional.linear(
        rows.abs(), weight.double().abs(), None if bias is None else wide(bias).abs()
    )
    own = (4 * max(weight.shape[1], 1) ** 0.5 + 8) * UNIT * magnitude
    return functional.linear(rows, wide(weight), wide(bias)), own + functional.linear(
        error, wide(weight).abs()
    )


def expected(x: Tensor, up: Tensor, down: Tensor, options: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """The result in float64, and its bound."""
    get, act, limit = options.get, ACT[options.get("activation", "silu")], options.get("limit")
    rows, error = wide(x), torch.zeros_like(wide(x))
    weight, shift = get("norm_weight"), get("norm_bias")
    if weight is not None and get("norm", "rms") == "rms":
        rows = rms_exact(x, weight, EPS, get("offset", 0.0))
        error = rms_bound(rows, x.dtype, weight, get("offset", 0.0))
    elif weight is not None:
        rows, error = layer_exact(x, weight, shift, EPS), layer_bound(x, weight, shift, EPS)

    def through(total: Tensor, off: Tensor) -> tuple[Tensor, Tensor]:
        total = total if limit is None else total.clamp(max=limit)
        slope = 2 * (total.abs() + off) if act is ACT["relu2"] else 1.2
        return act(total), slope * off + 16 * UNIT * act(total).abs()

    hidden, off = product(rows, error, up, get("up_bias"))
    if get("gate") is None:
        hidden, off = through(hidden, off)
    else:
        opened, opened_off = through(*product(rows, error, get("gate"), get("gate_bias")))
        hidden = hidden if limit is None else hidden.clamp(-limit, limit)
        off = off * (opened.abs() + opened_off) + opened_off * hidden.abs()
        hidden = hidden * opened
    off = stored(hidden, off + 4 * UNIT * hidden.abs(), x.dtype)
    result, off = product(hidden, off, down, get("down_bias"))
    if get("residual") is not None:
        result = result + wide(get("residual"))
        off = off + 4 * UNIT * wide(get("residual")).abs()
    return result, stored(result, off, x.dtype)


def check(tensors: list[Tensor], **options: Any) -> Tensor:
    """Run the operator, compare with float64 within the derived bound, return the result."""
    found = mlp(*tensors, eps=EPS, **options)
    exact, bound = expected(*tensors, options)
    assert found.shape == tensors[0].shape and found.dtype == tensors[0].dtype and found.is_contiguous()
    assert ((found.double() - exact).abs() <= bound).all()
    return found


@given(data=st.data())
def test_any_call(data: st.DataObject) -> None:
    draw, yes = data.draw, st.booleans()
    shape = (*draw(st.sampled_from(((), (0,), (3,), (2, 3), (140,)))), draw(st.sampled_from((1, 40, 130))))
    norm = draw(st.sampled_from((None, "rms", "layer")))
    sizes = (draw(st.sampled_from((0, 1, 30, 270))), draw(st.sampled_from(DTYPES)))
    tensors, named = call(shape, *sizes, draw(yes), draw(yes), norm, draw(yes))
    options = {
        "activation": draw(st.sampled_from(sorted(FUNCTIONS))),
        "limit": draw(st.sampled_from((None, 0.5))),
    }
    if norm is not None:
        options["norm"] = norm
    if norm == "rms":
        options["offset"] = draw(st.sampled_from((0.0, 1.0)))
    check(tensors, **named, **options)


@pytest.mark.parametrize("norm", [None, "rms"])
def test_more_than_one_block_each_way(norm: str | None) -> None:
    tensors, named = call((530, 1100), 640, torch.bfloat16, norm=norm)
    check(tensors, **named)


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("gate", [True, False])
def test_weights_in_8_bits(gate: bool, dtype: Any, kind: Any) -> None:
    """Scales multiply sums, so the exact weights are those in 8 bits times the scales."""
    (x, up, down), named = call((140, 136), 270, dtype, gate=gate)
    weights = {"up": up, "down": down, **({"gate": named["gate"]} if gate else {})}
    narrow = {name: (4 * weight).to(kind) for name, weight in weights.items()}
    scales = {name: random(len(weight)).abs() / 4 for name, weight in narrow.items()}
    exact = {name: narrow[name].double() * scales[name][:, None].double() for name in narrow}
    passed = {f"{name}_scale": scale for name, scale in scales.items()}
    found = mlp(x, eps=EPS, **{**named, **narrow, **passed})
    true, bound = expected(
        x, exact["up"], exact["down"], {**named, **({"gate": exact["gate"]} if gate else {})}
    )
    assert ((found.double() - true).abs() <= bound).all()


def test_layouts() -> None:
    (x, up, down), named = call()
    same = check([x, up, down], **named)
    turned = {
        **named,
        "gate": named["gate"].mT.contiguous().mT,
        "residual": named["residual"].mT.contiguous().mT,
    }
    assert torch.equal(check([x.mT.contiguous().mT, up.mT.contiguous().mT, down], **turned), same)
    check([x[:, :1].expand(2, 5, 40), up, down], **{**named, "up_bias": named["up_bias"][:1].expand(30)})


def test_special_values_stay_in_their_row() -> None:
    (x, up, down), named = call()
    x[0, 3, 2], named["residual"][1, 2, 3] = float("nan"), float("inf")
    found = mlp(x, up, down, eps=EPS, **named)
    assert found[0, 3].isnan().all() and found[1, 2, 3].isinf()
    others = torch.ones(2, 5, 40, dtype=torch.bool)
    others[0, 3], others[1, 2, 3] = False, False
    assert found[others].isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize(
    ("activation", "gate", "bias", "norm", "limit"),
    [
        ("silu", True, True, "rms", None),
        ("gelu", False, False, None, None),
        ("gelu_tanh", True, False, "layer", 0.8),
        ("relu2", False, True, "layer", None),
        ("relu", True, True, None, 0.8),
    ],
)
def test_gradients_against_float64(
    activation: str, gate: bool, bias: bool, norm: str | None, limit: float | None, dtype: Any
) -> None:
    """Within 8 units of the type of the largest: four rounded tensors lie between any two ends."""
    tensors, named = call(dtype=dtype, gate=gate, bias=bias, norm=norm)
    leaves = [t.requires_grad_() for t in (*tensors, *named.values())]
    options = {"activation": activation, "limit": limit, **({} if norm is None else {"norm": norm})}
    grad = random(2, 5, 40, dtype=dtype)
    found = torch.autograd.grad(mlp(*tensors, eps=EPS, **named, **options), leaves, grad)
    true = torch.autograd.grad(in_float64(tensors, named, options), leaves, grad.double())
    for leaf, a, b in zip(leaves, found, true):
        assert a.dtype == leaf.dtype and a.shape == leaf.shape
        assert (a.double() - b.double()).abs().max() <= 8 * torch.finfo(dtype).eps * b.abs().max()


def in_float64(tensors: list[Tensor], named: dict[str, Tensor], options: dict[str, Any]) -> Tensor:
    """The result, differentiable."""
    x, up, down = (t.double() for t in tensors)
    get = {name: t.double() for name, t in named.items()}.get
    if options.get("norm") == "rms":
        x = x / torch.sqrt((x * x).mean(-1, keepdim=True) + EPS) * get("norm_weight")
    elif options.get("norm") == "layer":
        x = functional.layer_norm(x, (x.shape[-1],), get("norm_weight"), get("norm_bias"), EPS)
    act, limit = ACT[options["activation"]], options["limit"] or float("inf")
    hidden = functional.linear(x, up, get("up_bias"))
    if get("gate") is None:
        hidden = act(hidden.clamp(max=limit))
    else:
        opened = functional.linear(x, get("gate"), get("gate_bias"))
        hidden = hidden.clamp(-limit, limit) * act(opened.clamp(max=limit))
    return functional.linear(hidden, down, get("down_bias")) + get("residual")


def test_other_batches_stage_nothing_new() -> None:
    tensors, named = call((1, 64, 40), residual=False)
    check(tensors, **named)
    before = len(kernel._cache)
    for shape in ((2, 30, 40), (5, 12, 40), (64, 1, 40), (33, 40)):
        check([random(*shape), *tensors[1:]], **named)
    assert len(kernel._cache) == before
