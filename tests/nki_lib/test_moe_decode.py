"""moe_decode against a loop over tokens and choices in float64; bounds are derived in `moe_bounds.py`."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from nki_lib.moe.activations import ACTIVATIONS  # noqa: E402
from nki_lib.moe.moe_decode.api import moe_decode  # noqa: E402
from nki_lib.moe.moe_prefill.api import moe_prefill  # noqa: E402
from tests.nki_lib.format_bounds import DTYPES  # noqa: E402
from tests.nki_lib.moe_bounds import by_block, by_channel, call, random  # noqa: E402
from tests.nki_lib.moe_bounds import compare as compare_with_exact  # noqa: E402

SIZES = [(1, 1, 1, 8, 8), (1, 9, 3, 64, 24), (3, 4, 4, 40, 24), (16, 5, 2, 136, 130), (33, 9, 3, 130, 20)]
STYLES = ("auto", "chosen", "all")


compare = partial(compare_with_exact, moe_decode)


@settings(max_examples=14, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    size=st.sampled_from(SIZES),
    dtype=st.sampled_from(DTYPES),
    activation=st.sampled_from(ACTIVATIONS),
    biased=st.booleans(),
    shared=st.sampled_from([None, "plain", "gated"]),
    first=st.sampled_from([None, 0, 2]),
    style=st.sampled_from(STYLES),
    seed=st.integers(0, 9),
)
def test_values(
    size: Any, dtype: Any, activation: str, biased: bool, shared: Any, first: Any, style: str, seed: int
) -> None:
    tokens, experts, _, width, inner = size
    rest: dict[str, Any] = {"activation": activation, "limit": 1.5, "first_expert": first, "style": style}
    if biased:
        rest["gate_up_bias"] = random(experts, 2, inner, dtype=dtype)
        rest["down_bias"] = random(experts, width)
    if shared:
        rest["shared_gate_up"] = random(width, 2, 24, dtype=dtype, scale=width**-0.5)
        rest["shared_down"] = random(24, width, dtype=dtype, scale=0.2)
    if shared == "gated":
        rest["shared_gate"] = random(tokens, dtype=dtype)
    compare(call(size, dtype, seed), **rest)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_fp8(monkeypatch: Any, target: str, kind: Any, dtype: Any) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
    x, gate_up, down, *routing = call((6, 3, 2, 136, 40), dtype)
    gate_up, down = (t.float().mul(9).to(kind) for t in (gate_up, down))
    scales = {"gate_up_scale": random(3, 2, 40).abs() / 9, "down_scale": random(3, 136).abs() / 9}
    wide = (
        by_channel(gate_up.flatten(2), scales["gate_up_scale"].flatten(1)).view(gate_up.shape),
        by_channel(down, scales["down_scale"]),
    )
    biases = {"gate_up_bias": random(3, 2, 40), "down_bias": random(3, 136)}
    compare((x, gate_up, down, *routing), wide, **biases, **scales)


def mx_weights(kind: str, low: int = 118) -> tuple[Any, ...]:
    """gate_up, down, their scales as bits; H 320, I 288: a whole slab of each and a part."""
    generator = torch.Generator().manual_seed(1)

    def bits(*shape: int, least: int = 0, stop: int = 256) -> Any:
        return torch.randint(least, stop, shape, generator=generator, dtype=torch.uint8)

    if kind == "fp4":
        gate_up, down = bits(3, 160, 2, 288), bits(3, 144, 320)
    else:
        dtype = getattr(torch, f"float8_{kind}")
        gate_up, down = random(3, 320, 2, 288).to(dtype), random(3, 288, 320).to(dtype)
    scales = (bits(3, 10, 2, 288, least=low, stop=124), bits(3, 9, 320, least=low, stop=124))
    return gate_up, down, *scales


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("kind", ["e4m3fn", "e5m2", "fp4"])
def test_mx(kind: str, dtype: Any) -> None:
    gate_up, down, *scales = mx_weights(kind)
    wide = by_block(gate_up.flatten(2), scales[0].flatten(2)).view(3, 320, 2, 288), by_block(down, scales[1])
    if dtype == torch.float32:
        scales = [s.view(torch.float8_e8m0fnu) for s in scales]
        if kind == "fp4":
            gate_up, down = (t.view(torch.float4_e2m1fn_x2) for t in (gate_up, down))
    x, routing = random(6, 320, dtype=dtype), call((6, 3, 2, 1, 1), dtype)[3:]
    compare((x, gate_up, down, *routing), wide, gate_up_scale=scales[0], down_scale=scales[1])


@pytest.mark.parametrize("kind", ["e4m3fn", "e5m2", "fp4"])
def test_mx_weights_are_widened_exactly(kind: str) -> None:
    """The bits that the numbers of a table give, where sums are exact: of small integers, and of one term."""
    gate_up, down, *scales = mx_weights(kind, low=123)
    bits = gate_up.view(torch.uint8)
    bits[:, :, 1, :5], bits[:, :, 1, 6:] = 0, 0  # one channel is not 0 times something
    wide = by_block(gate_up.flatten(2), scales[0].flatten(2)).view(3, 320, 2, 288), by_block(down, scales[1])
    x = torch.zeros(6, 320, dtype=torch.bfloat16)
    x[:, ::40] = random(6, 8).round().bfloat16()
    routing = call((6, 3, 2, 1, 1), torch.float32)[3:]
    plain = moe_decode(x, *(t.bfloat16() for t in wide), *routing)
    assert all((t.bfloat16().double() == t).all() for t in wide) and plain.any()
    assert torch.equal(
        moe_decode(x, gate_up, down, *routing, gate_up_scale=scales[0], down_scale=scales[1]), plain
    )


@pytest.mark.parametrize("style", ["chosen", "all"])
@pytest.mark.parametrize("chosen", ["one expert", "the last", "all", "the same twice"])
def test_how_tokens_choose(chosen: str, style: str) -> None:
    x, gate_up, down, weights, indices = call((9, 5, 5, 24, 16), torch.float32)
    if chosen == "one expert":
        weights, indices = weights[:, :1], torch.full((9, 1), 2)
    elif chosen == "the last":
        x, weights, indices = x[:1], weights[:1], indices[:1] * 0 + 4
    elif chosen == "the same twice":
        indices = indices // 2
    compare((x, gate_up, down, weights, indices), style=style)
    compare((x, gate_up, down, weights, indices.int()), style=style)


def test_an_expert_in_several_blocks() -> None:
    """What fits into SBUF at a time is less than one expert."""
    compare(call((2, 2, 1, 2048, 1100), torch.float32), down_bias=random(2, 2048))


def test_slices_add_up() -> None:
    arguments = call((7, 6, 3, 24, 16), torch.float32)
    x, gate_up, down, *routing = arguments
    parts = [
        moe_decode(x, gate_up[i : i + 2], down[i : i + 2], *routing, first_expert=i) for i in range(0, 6, 2)
    ]
    assert torch.allclose(sum(parts), compare(arguments), atol=1e-5)


def test_more_tokens_than_a_launch_takes() -> None:
    arguments = call((130, 3, 2, 24, 16), torch.float32)
    assert torch.equal(moe_decode(*arguments), moe_prefill(*arguments))
    compare(arguments, style="chosen", shared_gate=random(130), **shared_of(24))


def shared_of(width: int) -> dict[str, Any]:
    return {"shared_gate_up": random(width, 2, 8), "shared_down": random(8, width)}


def test_layouts() -> None:
    x, gate_up, down, weights, indices = call((7, 3, 2, 24, 16), torch.float32)
    whole = compare((x, gate_up, down, weights, indices))
    turned = (
        x.mT.contiguous().mT,
        gate_up.permute(3, 1, 2, 0).contiguous().permute(3, 1, 2, 0),
        down.mT.contiguous().mT,
        weights.mT.contiguous().mT,
        indices.mT.contiguous().mT,
    )
    assert torch.equal(moe_decode(*turned), whole)
    compare((x[:1].expand(7, 24), gate_up[:1].expand(3, -1, -1, -1), down, weights, indices))


@pytest.mark.parametrize("empty", ["tokens", "choices", "experts", "width", "inner"])
def test_nothing_to_do(empty: str) -> None:
    sizes = {"tokens": 3, "experts": 2, "choices": 2, "width": 8, "inner": 4}
    if empty == "experts":
        sizes["choices"] = 0
    sizes[empty] = 0
    arguments = call(tuple(sizes.values()), torch.float32)
    found = moe_decode(*arguments)
    assert found.shape == arguments[0].shape and not found.any()


@pytest.mark.parametrize("style", ["chosen", "all"])
def test_not_a_number_stays_where_it_is(style: str) -> None:
    """In a token, in a weight that a token gives, in an expert that some did not choose."""
    x, gate_up, down, weights, indices = call((6, 4, 1, 24, 16), torch.float32)
    indices = torch.tensor([[0], [1], [2], [0], [1], [2]])
    clean = moe_decode(x, gate_up, down, weights, indices, style=style)
    x, weights, gate_up, down = x.clone(), weights.clone(), gate_up.clone(), down.clone()
    x[0, 3], weights[1, 0], gate_up[2, 0, 0, 0], down[3] = (float("nan"),) * 4
    found = moe_decode(x, gate_up, down, weights, indices, style=style)
    assert found[[0, 1, 2, 5]].isnan().all() and torch.equal(found[[3, 4]], clean[[3, 4]])
    down[1] = float("inf")
    found = moe_decode(x, gate_up, down, weights, indices, style=style)
    assert torch.equal(found[3], clean[3]) and not found[4].isfinite().any()
