"""8-bit factors: every bit of the result, against tables of the formats, on every generation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402

import nki  # noqa: E402
from nki_lib.linear.matmul.api import matmul  # noqa: E402
from nki_lib.linear.matmul.fused import matmul_fused as kernel  # noqa: E402


def decoded(code: int, exponent_bits: int) -> float:
    """The number that eight bits stand for: sign, exponent, fraction, spelled out."""
    fraction_bits = 7 - exponent_bits
    sign = -1.0 if code & 0x80 else 1.0
    exponent = code >> fraction_bits & (1 << exponent_bits) - 1
    fraction = code & (1 << fraction_bits) - 1
    bias = (1 << exponent_bits - 1) - 1
    if exponent_bits == 5 and exponent == 31:
        return sign * float("inf") if fraction == 0 else float("nan")
    if exponent_bits == 4 and code & 0x7F == 0x7F:
        return float("nan")
    if exponent == 0:
        return sign * fraction * 2.0 ** (1 - bias - fraction_bits)
    return sign * (1 + fraction / (1 << fraction_bits)) * 2.0 ** (exponent - bias)


TABLES = {
    torch.float8_e4m3fn: np.array([decoded(code, 4) for code in range(256)]),
    torch.float8_e5m2: np.array([decoded(code, 5) for code in range(256)]),
}
KINDS = tuple(TABLES)
SMALL = {  # multiples of 1/8 up to 16: sums of 1024 products are below 2^24 times 1/64, exact in float32
    kind: np.flatnonzero((table * 8 == np.rint(table * 8)) & (np.abs(table) <= 15))
    for kind, table in TABLES.items()
}


def made(codes: Any, kind: Any) -> Tensor:
    return torch.from_numpy(np.asarray(codes, np.uint8)).view(kind)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("kinds", [(a, b) for a in KINDS for b in KINDS])
def test_all_products_of_two_numbers(kinds: Any, depth: int) -> None:
    """256 x 256 products, alone and beside a zero, which lets the Tensor engine take two at once."""
    every = np.zeros((256, depth), np.uint8)
    every[:, 0] = np.arange(256)
    found = matmul(made(every, kinds[0]), made(every.T, kinds[1]), out_dtype=torch.float32).numpy()
    with np.errstate(invalid="ignore"):
        exact = np.outer(TABLES[kinds[0]], TABLES[kinds[1]]).astype(np.float32)
    assert np.array_equal(found, exact, equal_nan=True)


SIZES = st.sampled_from((1, 2, 5, 64, 65, 130, 258))


@settings(max_examples=40)
@given(
    sizes=st.tuples(SIZES, SIZES, SIZES),
    kinds=st.tuples(
        st.sampled_from((*KINDS, torch.bfloat16, torch.float16, torch.float32)), st.sampled_from(KINDS)
    ),
    turned=st.tuples(st.booleans(), st.booleans()),
    scaled=st.tuples(*[st.sampled_from(("none", "tensor", "channel", "column"))] * 2),
    out_dtype=st.sampled_from((None, torch.float32)),
    seed=st.integers(0, 99),
)
def test_every_bit(sizes: Any, kinds: Any, turned: Any, scaled: Any, out_dtype: Any, seed: int) -> None:
    (m, k, n), random = sizes, np.random.default_rng(seed)
    a = made(random.choice(SMALL[kinds[1]], (m, k)), kinds[1]).to(torch.float32).to(kinds[0])
    codes = random.choice(SMALL[kinds[1]], (k, n))
    b, exact = made(codes, kinds[1]), a.double().numpy() @ TABLES[kinds[1]][codes]
    a, b = (t.mT.contiguous().mT if turn else t for t, turn in zip((a, b), turned))
    options: dict[str, Any] = {"out_dtype": out_dtype}
    expected = exact.astype(np.float32)
    for name, count, axis, how in (("a_scale", m, 1, scaled[0]), ("b_scale", n, 0, scaled[1])):
        if how == "none" or (name == "a_scale" and kinds[0] not in KINDS):
            continue
        scale = random.uniform(0.1, 3, 1 if how == "tensor" else count).astype(np.float32)
        expected = expected * np.expand_dims(scale, axis)
        given_scale = torch.from_numpy(scale)
        options[name] = given_scale.unsqueeze(axis) if how == "column" else given_scale
    bias = torch.from_numpy(random.standard_normal(n).astype(np.float32))
    found = matmul(a, b, bias=bias, **options)
    wanted = out_dtype or (torch.bfloat16 if kinds[0] in KINDS else kinds[0])
    assert found.dtype == wanted
    assert torch.equal(found, torch.from_numpy(expected + bias.numpy()).to(wanted))


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("kinds", [("float8_e4m3fn", "float8_e4m3fn"), ("float8_e5m2", "float8_e4m3fn")])
def test_large_ones_on_every_generation(target: str, kinds: Any) -> None:
    """More than 512 rows: transposes by DMA, in pairs; and the two kinds, one of which may have to be widened."""
    random = np.random.default_rng(1)
    a, b = (
        random.integers(-3, 4, shape).astype(kind) for shape, kind in zip(((530, 654), (520, 654)), kinds)
    )
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    scale = np.full(530, 0.5, np.float32)
    found = nki.simulate(kernel, target=target)(a, scale, b, None, None, False, False, None, "float32")
    assert np.array_equal(found, exact / 2)
    wide = a.astype(np.float32).astype("bfloat16")
    found = nki.simulate(kernel, target=target)(wide, None, b, None, None, False, False, "relu", "float32")
    assert np.array_equal(found, np.maximum(exact, 0))


def test_ordinary_numbers_within_the_bound_of_a_product() -> None:
    """Of all magnitudes: no longer exact, but off by no more than a sum of K terms in float32 may be."""
    a, b = (torch.randn(s, generator=torch.Generator().manual_seed(3)) for s in ((70, 400), (400, 90)))
    a, b = a.to(torch.float8_e5m2), b.to(torch.float8_e4m3fn)
    found = matmul(a, b, out_dtype=torch.float32).double()
    error = (4 * 400**0.5 + 4) * 2.0**-24 * (a.double().abs() @ b.double().abs())
    assert ((found - a.double() @ b.double()).abs() <= error).all()
