"""Values of decoding: against float64, over shapes, kinds of cache, types and flags.

The bound is that of `attention_bounds`, with the weights' rounding counted in their sum, too, and 4 units for tanh.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402

from nki_lib.attention.flash_decode import loading  # noqa: E402
from nki_lib.attention.flash_decode.api import flash_decode  # noqa: E402
from nki_lib.attention.flash_decode.reference import decode  # noqa: E402

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
UNIT = 2.0**-24


def random(*shape: int, dtype: Any = torch.float32, spread: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return (torch.randn(*shape, generator=generator) * spread).to(dtype)


def filled(cache: Tensor, lengths: list[int], value: float = float("nan")) -> Tensor:
    """The cache with `value` after the end of each sequence."""
    cache = cache.clone()
    for b, length in enumerate(lengths):
        cache[b, :, length:] = value
    return cache


def in_blocks(cache: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The same cache in shuffled blocks, and its table. Dimensions: [B, Hkv, S, D] -> [N, Hkv, size, D], [B, n]."""
    batch, heads, length, depth = cache.shape
    count = -(-length // size)
    padded = torch.nn.functional.pad(cache, (0, 0, 0, count * size - length), value=float("nan"))
    rows = padded.view(batch, heads, count, size, depth).transpose(1, 2).flatten(0, 1)
    order = torch.randperm(batch * count, generator=torch.Generator().manual_seed(length))
    return rows[order.argsort()], order.view(batch, count).int()


def bound_of(
    q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, options: dict[str, Any]
) -> tuple[Tensor, Tensor]:
    """The result in float64, and what each element may be off by."""
    depth, keys = q.shape[3], k.shape[2]
    wide = {name: value.double() if isinstance(value, Tensor) else value for name, value in options.items()}
    exact = decode(q.double(), k.double(), v.double(), lengths, **wide)
    mixed = decode(q.double(), k.double(), v.double().abs(), lengths, **wide)
    factor = abs(depth**-0.5 if options.get("scale") is None else options["scale"])
    repeated = k.double().repeat_interleave(q.shape[1] // k.shape[1], 1).abs()
    magnitude = factor * (q.double().abs() @ repeated.transpose(-1, -2)).amax(-1, keepdim=True)
    narrow = torch.finfo(q.dtype)
    stored = narrow.eps / 2
    weight = (4 * depth**0.5 + 3) * UNIT * magnitude + (12 + 4 * (options.get("softcap") or 0)) * UNIT
    sums = 8 * keys**0.5 * UNIT + 2 * UNIT
    return exact, (2 * weight + sums + 2 * stored) * mixed + stored * exact.abs() + narrow.tiny


def check(
    q: Tensor, k: Tensor, v: Tensor, lengths: list[int], size: int | None = None, **options: Any
) -> Tensor:
    """Decode with NaN after the end of each sequence, from blocks of `size` keys if given, and compare."""
    data = torch.tensor(lengths, dtype=torch.int32)
    k_cache, v_cache, table = filled(k, lengths), filled(v, lengths), None
    if size is not None:
        (k_cache, table), (v_cache, _) = in_blocks(k_cache, size), in_blocks(v_cache, size)
        for b, length in enumerate(lengths):
            table[b, -(-length // size) :] = -7
    found = flash_decode(q, k_cache, v_cache, data, block_table=table, **options)
    assert found.shape == q.shape and found.dtype == q.dtype and found.is_contiguous()
    exact, bound = bound_of(q, k, v, data, options)
    error = (found.double() - exact).abs()
    assert (error <= bound).all(), f"{(error / bound).max():.2f} times the bound"
    return found


# B, (Hq, Hkv), T, S, D and lengths: small, more rows than one launch takes, a full cache.
CASES = [
    ((2, (4, 2), 1, 200, 16), [200, 1]),
    ((2, (6, 1), 3, 300, 64), [2, 299]),
    ((1, (10, 1), 8, 130, 24), [129]),
    ((3, (2, 2), 1, 128, 128), [128, 0, 5]),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("size", [None, 16], ids=["whole", "blocks"])
def test_against_float64(case: Any, dtype: Any, size: int | None) -> None:
    (batch, (heads, key_heads), tokens, keys, depth), lengths = case
    q = random(batch, heads, tokens, depth, dtype=dtype)
    k, v = (
        random(batch, key_heads, keys, depth, dtype=dtype),
        random(batch, key_heads, keys, depth, dtype=dtype),
    )
    check(q, k, v, lengths, size)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).removeprefix("torch."))
@pytest.mark.parametrize("size", [None, 3, 16], ids=["whole", "by 3", "by 16"])
def test_several_spans(size: int | None, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "SPAN_KEYS", 2)
    q = random(2, 4, 2, 32, dtype=dtype)
    k, v = random(2, 2, 600, 32, dtype=dtype), random(2, 2, 600, 32, dtype=dtype).flip(2)
    check(q, k, v, [599, 130], size, sinks=random(4), window=400)
    check(q, k, v, [40, 520], size)


@st.composite
def calls(draw: st.DrawFn) -> dict[str, Any]:
    """Small calls of every kind."""
    key_heads, batch, keys = draw(st.integers(1, 2)), draw(st.integers(0, 2)), draw(st.integers(1, 200))
    return {
        "batch": batch,
        "heads": (key_heads * draw(st.integers(1, 3)), key_heads),
        "tokens": draw(st.integers(1, 4)),
        "keys": keys,
        "depth": draw(st.sampled_from((1, 2, 3, 16, 40, 128))),
        "dtype": draw(st.sampled_from(DTYPES)),
        "spread": draw(st.sampled_from((0.0, 1.0, 20.0))),
        "lengths": draw(st.lists(st.integers(0, keys), min_size=batch, max_size=batch)),
        "size": draw(st.sampled_from((None, 1, 7, 16, 48))),
    }


@given(
    call=calls(),
    scale=st.sampled_from((None, 1.0, -0.3, 0.0)),
    window=st.sampled_from((None, 1, 5, 150)),
    softcap=st.sampled_from((None, 2.0, 30.0)),
    sinks=st.booleans(),
)
def test_any_call(
    call: dict[str, Any], scale: float | None, window: int | None, softcap: float | None, sinks: bool
) -> None:
    heads, key_heads = call["heads"]
    dtype = call["dtype"]
    q = random(call["batch"], heads, call["tokens"], call["depth"], dtype=dtype, spread=call["spread"])
    shape = (call["batch"], key_heads, call["keys"], call["depth"])
    k, v = random(*shape, dtype=dtype), random(*shape, dtype=dtype).flip(2)
    options = {"scale": scale, "window": window, "softcap": softcap}
    check(q, k, v, call["lengths"], call["size"], sinks=random(heads) if sinks else None, **options)


def test_strides_do_not_matter() -> None:
    lengths = torch.tensor([40, 64])
    q, k, v = (random(2, s, h, 16).transpose(1, 2) for s, h in ((2, 4), (64, 2), (64, 2)))
    expected = flash_decode(q.contiguous(), k.contiguous(), v.contiguous(), lengths)
    assert torch.equal(flash_decode(q, k, v, lengths), expected)
    one = random(1, 2, 64, 16)
    both = flash_decode(q, one.expand(2, -1, -1, -1), one.expand(2, -1, -1, -1), lengths)
    assert torch.equal(both, flash_decode(q, one.repeat(2, 1, 1, 1), one.repeat(2, 1, 1, 1), lengths))


@pytest.mark.parametrize("size", [None, 16], ids=["whole", "blocks"])
def test_new_keys_are_written_in_place(size: int | None) -> None:
    lengths = [130, 1, 0]
    k, v = random(3, 2, 200, 16), random(3, 2, 200, 16).flip(2)
    new_k, new_v, q = random(3, 2, 2, 16), random(3, 2, 2, 16) * 2, random(3, 4, 2, 16)
    expected = [k.clone(), v.clone()]
    for cache, new in zip(expected, (new_k, new_v)):
        cache[0, :, 128:130] = new[0]
        cache[1, :, 0] = new[1, :, 1]  # its first token stands before the beginning
    given, table = [k, v], None
    if size is not None:
        given = [in_blocks(cache, size)[0] for cache in given]
        expected = [in_blocks(cache, size)[0] for cache in expected]
        table = in_blocks(k, size)[1]
    data = torch.tensor(lengths)
    found = flash_decode(q, *given, data, block_table=table, k_new=new_k, v_new=new_v)
    for cache, wanted in zip(given, expected):
        assert torch.equal(cache.nan_to_num(7.0), wanted.nan_to_num(7.0))
    assert torch.equal(found, flash_decode(q, *expected, data, block_table=table))


def test_a_cache_of_any_strides_is_written() -> None:
    k = random(1, 64, 2, 16).transpose(1, 2)
    v, new = k.clone(), random(1, 2, 1, 16)
    flash_decode(random(1, 2, 1, 16), k, v, torch.tensor([9]), k_new=new, v_new=new)
    assert torch.equal(k, v) and torch.equal(k[:, :, 8:9], new)


def test_token_by_token_is_the_same_as_at_once() -> None:
    q, k, v = random(1, 4, 4, 16), random(1, 2, 150, 16), random(1, 2, 150, 16).flip(2)
    together = flash_decode(q, k, v, torch.tensor([150]), window=140)
    for t in range(4):
        alone = flash_decode(q[:, :, t : t + 1], k, v, torch.tensor([147 + t]), window=140)
        assert torch.allclose(alone, together[:, :, t : t + 1], rtol=1e-5, atol=1e-6)


def test_tokens_without_keys_are_zero() -> None:
    q, k = random(2, 2, 3, 8), random(2, 1, 20, 8)
    for sinks in (None, torch.zeros(2)):
        found = flash_decode(q, k, k, torch.tensor([0, 1]), sinks=sinks)
        assert not found[0].any() and not found[1, :, :2].any() and found[1, :, 2].all()


def test_huge_logits_pick_the_largest() -> None:
    q, k, v = random(1, 2, 1, 16, spread=1e4), random(1, 1, 9000, 16), random(1, 1, 9000, 16).flip(2)
    best = (q @ k.transpose(-1, -2)).argmax(-1)
    found = flash_decode(q, k, v, torch.tensor([9000]))
    assert torch.allclose(found, v[0, 0][best], rtol=1e-6)


def test_a_large_sink_takes_everything_and_a_low_one_nothing() -> None:
    q, k, v = random(1, 2, 1, 16), random(1, 2, 50, 16), random(1, 2, 50, 16).flip(2)
    plain = flash_decode(q, k, v, torch.tensor([50]))
    found = flash_decode(q, k, v, torch.tensor([50]), sinks=torch.tensor([1e4, -1e4]))
    assert not found[0, 0].any() and torch.equal(found[0, 1], plain[0, 1])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_special_values_pass_through_as_in_pytorch(value: float) -> None:
    for name in ("q", "k", "v"):
        tensors = {"q": random(1, 1, 2, 8), "k": random(1, 1, 20, 8), "v": random(1, 1, 20, 8).flip(2)}
        tensors[name][0, 0, 1, 3] = value
        expected = decode(*tensors.values(), torch.tensor([20]))
        found = flash_decode(*tensors.values(), torch.tensor([20]))
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5, equal_nan=True), name
