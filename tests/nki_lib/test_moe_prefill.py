"""moe_prefill against a loop over tokens and choices in float64."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from nki_lib.moe.activations import ACTIVATIONS  # noqa: E402
from nki_lib.moe.moe_prefill.api import moe_prefill  # noqa: E402
from tests.nki_lib.format_bounds import DTYPES  # noqa: E402
from tests.nki_lib.moe_bounds import by_block, by_channel, call, exact, random  # noqa: E402
from tests.nki_lib.moe_bounds import compare as compare_with_exact  # noqa: E402

SIZES = [(1, 1, 1, 8, 8), (3, 4, 4, 40, 24), (70, 5, 2, 136, 130), (200, 3, 1, 64, 160), (33, 9, 3, 130, 20)]


compare = partial(compare_with_exact, moe_prefill)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    size=st.sampled_from(SIZES),
    dtype=st.sampled_from(DTYPES),
    activation=st.sampled_from(ACTIVATIONS),
    biased=st.booleans(),
    shared=st.sampled_from([None, "plain", "gated"]),
    first=st.sampled_from([None, 0, 2]),
    seed=st.integers(0, 9),
)
def test_values(
    size: Any, dtype: Any, activation: str, biased: bool, shared: Any, first: Any, seed: int
) -> None:
    tokens, experts, _, width, inner = size
    rest: dict[str, Any] = {"activation": activation, "limit": 1.5, "first_expert": first}
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
    x, gate_up, down, *routing = call((20, 3, 2, 136, 40), dtype)
    gate_up, down = (t.float().mul(9).to(kind) for t in (gate_up, down))
    scales = {"gate_up_scale": random(3, 2, 40).abs() / 9, "down_scale": random(3, 136).abs() / 9}
    wide = (
        by_channel(gate_up.flatten(2), scales["gate_up_scale"].flatten(1)).view(gate_up.shape),
        by_channel(down, scales["down_scale"]),
    )
    compare((x, gate_up, down, *routing), wide, gate_up_bias=random(3, 2, 40), **scales)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("kind", ["e4m3fn", "e5m2", "fp4"])
def test_mx(kind: str, named: bool) -> None:
    x, gate_up, down, *routing = call((20, 3, 2, 160, 96), torch.bfloat16)
    generator = torch.Generator().manual_seed(1)

    def bits(*shape: int, low: int = 0, high: int = 256) -> Any:
        return torch.randint(low, high, shape, generator=generator, dtype=torch.uint8)

    if kind == "fp4":
        gate_up, down = bits(3, 80, 2, 96), bits(3, 48, 160)
    else:
        gate_up, down = (t.float().mul(9).to(getattr(torch, f"float8_{kind}")) for t in (gate_up, down))
    scales = bits(3, 5, 2, 96, low=118, high=124), bits(3, 3, 160, low=118, high=124)
    wide = by_block(gate_up.flatten(2), scales[0].flatten(2)).view(3, 160, 2, 96), by_block(down, scales[1])
    if named:
        scales = tuple(s.view(torch.float8_e8m0fnu) for s in scales)  # type: ignore[assignment]
        if kind == "fp4":
            gate_up, down = (t.view(torch.float4_e2m1fn_x2) for t in (gate_up, down))
    compare((x, gate_up, down, *routing), wide, gate_up_scale=scales[0], down_scale=scales[1])


def test_mx_beyond_float16() -> None:
    """Weights that float16 could not hold, beside tokens and results that it holds."""
    x, _, _, *routing = call((20, 3, 2, 160, 96), torch.float16)
    bits = torch.randint(
        0, 256, (3, 80, 2, 96), generator=torch.Generator().manual_seed(1), dtype=torch.uint8
    )
    gate_up, down = bits, bits.flatten(1)[:, : 48 * 160].reshape(3, 48, 160)
    scales = torch.full((3, 5, 2, 96), 127 + 15).byte(), torch.full((3, 3, 160), 127 - 10).byte()
    wide = by_block(gate_up.flatten(2), scales[0].flatten(2)).view(3, 160, 2, 96), by_block(down, scales[1])
    assert wide[0].max() > torch.finfo(torch.float16).max
    arguments = (x * 2.0**-16, gate_up, down, *routing)
    assert compare(arguments, wide, gate_up_scale=scales[0], down_scale=scales[1]).any()


@pytest.mark.parametrize("chosen", ["one expert", "nobody but the last", "all", "the same twice"])
def test_how_tokens_choose(chosen: str) -> None:
    x, gate_up, down, weights, indices = call((150, 5, 5, 24, 16), torch.float32)
    if chosen == "one expert":
        weights, indices = weights[:, :1], torch.full((150, 1), 2)
    elif chosen == "nobody but the last":
        weights, indices = weights[:1], indices[:1] * 0 + 4
        x = x[:1]
    elif chosen == "the same twice":
        indices = indices // 2
    compare((x, gate_up, down, weights, indices))
    compare((x, gate_up, down, weights, indices.int()))


def test_layouts() -> None:
    x, gate_up, down, weights, indices = call((20, 3, 2, 24, 16), torch.float32)
    whole = compare((x, gate_up, down, weights, indices))
    turned = (
        x.mT.contiguous().mT,
        gate_up.permute(3, 1, 2, 0).contiguous().permute(3, 1, 2, 0),
        down.mT.contiguous().mT,
        weights.mT.contiguous().mT,
        indices.mT.contiguous().mT,
    )
    assert torch.equal(moe_prefill(*turned), whole)
    compare((x[:1].expand(20, 24), gate_up[:1].expand(3, -1, -1, -1), down, weights, indices))


@pytest.mark.parametrize("empty", ["tokens", "choices", "experts", "width", "inner"])
def test_nothing_to_do(empty: str) -> None:
    sizes = dict(zip(("tokens", "experts", "choices", "width", "inner"), (4, 3, 2, 16, 8), strict=True))
    sizes[empty] = 0
    if empty == "experts":
        sizes["choices"] = 0
    tokens, experts, choices, width, inner = sizes.values()
    indices = torch.arange(tokens * choices).view(tokens, choices) % max(experts, 1)
    bias = random(experts, width)
    arguments = random(tokens, width), random(experts, width, 2, inner), random(experts, inner, width)
    compare((*arguments, torch.ones(tokens, choices), indices), down_bias=bias)


def test_slices_of_experts_add_up() -> None:
    x, gate_up, down, weights, indices = call((40, 6, 3, 24, 16), torch.float32)
    whole, bound = exact(x, gate_up, down, weights, indices)
    parts = [
        compare((x, gate_up[i : i + 2], down[i : i + 2], weights, indices), first_expert=i)
        for i in range(0, 6, 2)
    ]
    assert ((sum(parts).double() - whole).abs() <= 3 * bound).all()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_bad_token_spoils_no_other(value: float) -> None:
    x, gate_up, down, weights, indices = call((40, 3, 2, 24, 16), torch.float32)
    good = moe_prefill(x, gate_up, down, weights, indices)
    x[7, 3] = value
    bad = moe_prefill(x, gate_up, down, weights, indices)
    assert not bad[7].isfinite().any()
    others = torch.arange(40) != 7
    assert torch.equal(bad[others], good[others])


def test_pieces() -> None:
    import nki_lib.moe.moe_prefill.op as op

    arguments = call((70, 3, 2, 24, 16), torch.float32)
    shared = {"shared_gate_up": random(24, 2, 8), "shared_down": random(8, 24), "shared_gate": random(70)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(op, "PIECE", 32)
        compare(arguments, **shared)


def test_wide_experts_are_cut_into_parts() -> None:
    arguments = call((9, 3, 2, 4096, 384), torch.float32)
    rest = {"gate_up_bias": random(3, 2, 384), "down_bias": random(3, 4096)}
    compare(arguments, **rest)
