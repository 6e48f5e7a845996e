"""What attention does where callers are careless: each of these once went wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import nki_lib  # noqa: E402
from nki import errors  # noqa: E402


def random(*shape: int, dtype: Any = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float32).to(
        dtype
    )


@pytest.fixture(params=[torch.bfloat16, torch.float64], ids=str)
def other_default_dtype(request: Any) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield
    torch.set_default_dtype(before)


def gradient(run: Callable[..., Tensor], x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    run(x, x, x).square().sum().backward()
    assert x.grad is not None
    return x.grad


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing_changes_no_gradient(reentrant: bool) -> None:
    x = random(1, 2, 9, 8)

    def again(*tensors: Tensor) -> Tensor:
        return checkpoint(nki_lib.flash_attention, *tensors, use_reentrant=reentrant)

    assert torch.equal(gradient(again, x), gradient(nki_lib.flash_attention, x))


@pytest.mark.usefixtures("other_default_dtype")
@pytest.mark.parametrize("run", [nki_lib.flash_attention, nki_lib.flex_attention])
def test_the_default_dtype_changes_nothing(run: Any) -> None:
    x = random(1, 2, 5, 8)
    expected = gradient(scaled_dot_product_attention, x)
    torch.testing.assert_close(gradient(run, x), expected, rtol=1e-4, atol=1e-5)
    mask = torch.ones(1, 5, dtype=torch.bool)
    assert nki_lib.flash_attention(x, x, x, key_padding_mask=mask).dtype == torch.float32


def calls_with_one_tensor_on_meta() -> dict[str, Callable[[], Any]]:
    q, cache, lens = random(1, 2, 1, 8), random(1, 2, 9, 8), torch.tensor([3])
    x, weight = random(1, 3, 8), random(24, 8)
    table = random(3, 8)
    return {
        "k": lambda: nki_lib.flash_attention(q, q.to("meta"), q),
        "sinks": lambda: nki_lib.flash_attention(q, q, q, sinks=torch.zeros(2, device="meta")),
        "seq_lens": lambda: nki_lib.flash_decode(q, cache, cache, lens.to("meta")),
        "v": lambda: nki_lib.flex_attention(q, q, q.to("meta")),
        "norm_weight": lambda: nki_lib.qkv_projection(
            x, weight, num_heads=1, num_kv_heads=1, norm_weight=torch.ones(8, device="meta")
        ),
        "cos": lambda: nki_lib.rope(random(1, 1, 3, 8), table.to("meta"), table),
    }


@pytest.mark.parametrize("name", calls_with_one_tensor_on_meta())
def test_a_tensor_on_another_device_is_refused(name: str) -> None:
    with pytest.raises(errors.ArgumentError, match=f"`{name}`|meta"):
        calls_with_one_tensor_on_meta()[name]()


REFUSED: dict[str, dict[str, Any]] = {
    "window": {"window": 0},
    "softcap": {"softcap": -1.0},
    "scale": {"scale": float("nan")},
    "sinks": {"sinks": torch.zeros(3)},
    "q": {"q": random(1, 3, 1, 8)},
    "k_new": {"k_new": random(1, 2, 2, 8), "v_new": random(1, 2, 2, 8)},
    "v_new": {"v_new": None},
    "seq_lens": {"seq_lens": torch.tensor([30])},
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_decode_writes_nothing_into_the_caches(name: str) -> None:
    k_cache, v_cache = torch.zeros(1, 2, 9, 8), torch.zeros(1, 2, 9, 8)
    new = random(1, 2, 1, 8)
    call = {"q": new, "seq_lens": torch.tensor([3]), "k_new": new, "v_new": new, **REFUSED[name]}
    with pytest.raises(errors.NkiError):
        nki_lib.flash_decode(k_cache=k_cache, v_cache=v_cache, **call)
    assert not k_cache.any() and not v_cache.any()


@pytest.mark.parametrize("name", ["k_cache", "k_new", "v_new"])
def test_a_cache_is_not_written_through_a_gradient(name: str) -> None:
    new = random(1, 1, 1, 8)
    call = {
        "k_cache": torch.zeros(1, 1, 9, 8),
        "v_cache": torch.zeros(1, 1, 9, 8),
        "k_new": new,
        "v_new": new,
    }
    call[name] = call[name].clone().requires_grad_()
    with pytest.raises(errors.NoBackwardError, match=name):
        nki_lib.flash_decode(new, seq_lens=torch.tensor([5]), **call)
    assert not call["k_cache"].any()
    with torch.no_grad():
        assert nki_lib.flash_decode(new, seq_lens=torch.tensor([5]), **call).shape == new.shape


@pytest.mark.parametrize(
    "extras", [{}, {"causal": True}, {"bias": torch.zeros(1)}], ids=["plain", "causal", "bias"]
)
def test_a_row_of_scores_that_are_all_minus_infinity_gives_zeros(extras: dict[str, Any]) -> None:
    q, v = torch.ones(1, 1, 2, 8), random(1, 1, 2, 8)
    k = q.clone()
    k[..., 0] = -float("inf")
    assert not nki_lib.flash_attention(q, k, v, **extras).any()


def test_under_autocast_products_are_of_its_dtype() -> None:
    q, k = random(1, 2, 3, 8), random(1, 2, 3, 8, dtype=torch.bfloat16)
    x, weight = random(1, 3, 8, dtype=torch.bfloat16), random(24, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert nki_lib.flash_attention(q, k, k).dtype == torch.bfloat16
        assert nki_lib.flex_attention(q, k, k).dtype == torch.bfloat16
        assert nki_lib.flash_decode(q[:, :, :1], q, k, torch.tensor([3])).dtype == torch.bfloat16
        assert nki_lib.output_projection(q, random(4, 16, dtype=torch.bfloat16)).dtype == torch.bfloat16
        heads = nki_lib.qkv_projection(x, weight, num_heads=1, num_kv_heads=1)
        assert {head.dtype for head in heads} == {torch.bfloat16}
        with pytest.raises(errors.DtypeError, match="float64"):
            nki_lib.flash_attention(q.double(), k, k)


def test_an_autocast_cache_keeps_its_dtype() -> None:
    new, k_cache = random(1, 1, 1, 8), torch.zeros(1, 1, 9, 8)
    v_cache = k_cache.clone()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = nki_lib.flash_decode(new.bfloat16(), k_cache, v_cache, torch.tensor([1]), k_new=new, v_new=new)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, new)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("q", lambda q: nki_lib.flash_attention(q.numpy(), q, q)),
        ("bias", lambda q: nki_lib.flash_attention(q, q, q, bias=[1.0])),
        ("window", lambda q: nki_lib.flash_attention(q, q, q, window=2.5)),
        ("scale", lambda q: nki_lib.flash_attention(q, q, q, scale="x")),
        ("scale", lambda q: nki_lib.flash_attention(q, q, q, scale=1e300)),
        ("scale", lambda q: nki_lib.flex_attention(q, q, q, scale=float("inf"))),
        ("seq_lens", lambda q: nki_lib.flash_decode(q, q, q, [1, 2])),
        (
            "sinks",
            lambda q: nki_lib.flash_decode(q, q, q, torch.tensor([1]), sinks=torch.zeros(1).to_sparse()),
        ),
        ("block_mask", lambda q: nki_lib.flex_attention(q, q, q, block_mask="causal")),
        ("q", lambda q: nki_lib.flash_attention(q[..., :0], q[..., :0], q[..., :0])),
        ("eps", lambda q: nki_lib.qkv_projection(q[0], random(24, 8), num_heads=1, num_kv_heads=1, eps=-1.0)),
    ],
)
def test_what_is_no_tensor_or_number_is_named(name: str, call: Any) -> None:
    with pytest.raises(errors.NkiError, match=f"`{name}`") as found:
        call(random(1, 1, 2, 8))
    assert "allowed" in str(found.value).lower()
