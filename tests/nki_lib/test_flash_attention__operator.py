"""`torch.ops.nki_lib.flash_attention` as PyTorch sees it: schema, fake, compile, gradients, errors, launches."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from nki import errors  # noqa: E402
from nki_lib.attention.flash_attention.api import flash_attention  # noqa: E402
from nki_lib.attention.flash_attention.kernel import flash_attention as kernel  # noqa: E402
from tests.nki_lib.attention_bounds import attended  # noqa: E402
from tests.source_tree import ROOT  # noqa: E402


def random(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("q", "k"), [((2, 4, 9, 16), (2, 2, 20, 16)), ((1, 1, 20, 8), (1, 1, 9, 8)), ((0, 2, 3, 8), (0, 1, 3, 8))]
)
def test_opcheck(q: Any, k: Any, dtype: Any) -> None:
    tensors = (random(*q, dtype=dtype), random(*k, dtype=dtype), random(*k, dtype=dtype))
    for causal in (False, True):
        torch.library.opcheck(torch.ops.nki_lib.flash_attention, tensors, {"causal": causal, "scale": 0.3})


def test_opcheck_of_a_transposed_view() -> None:
    q = random(1, 7, 2, 8).transpose(1, 2)
    torch.library.opcheck(torch.ops.nki_lib.flash_attention, (q, q, q))


def test_schema() -> None:
    assert str(torch.ops.nki_lib.flash_attention.default._schema) == (
        "nki_lib::flash_attention(Tensor q, Tensor k, Tensor v, Tensor? sinks=None, Tensor? bias=None, "
        "Tensor? key_padding_mask=None, Tensor? q_segment_ids=None, Tensor? kv_segment_ids=None, "
        "*, bool causal=False, float? scale=None, SymInt? window=None, float? softcap=None) -> Tensor"
    )


def test_compiles_as_one_graph_for_all_lengths() -> None:
    graphs = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    def block(q: Any, k: Any, v: Any) -> Any:
        return flash_attention(q * 2, k, v, causal=True) + 1

    torch._dynamo.reset()
    compiled = torch.compile(block, fullgraph=True, backend=backend, dynamic=True)
    for batch, length in ((3, 20), (5, 33), (6, 130)):
        q, k = random(batch, 4, length, 16), random(batch, 2, length, 16)
        assert torch.allclose(compiled(q, k, k), attended(q * 2, k, k, causal=True) + 1, atol=1e-5)
    assert len(graphs) == 1
    torch._dynamo.reset()


def test_compiles_with_fake_tensors() -> None:
    """`aot_eager` traces with the fake implementation and checks its strides against the real result's use."""
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda q: flash_attention(q, q, q).transpose(1, 2).reshape(1, 12, 16),
        fullgraph=True,
        backend="aot_eager",
    )
    q = random(1, 12, 2, 8).transpose(1, 2)
    expected = attended(q, q, q).transpose(1, 2).reshape(1, 12, 16)
    assert torch.allclose(compiled(q), expected, atol=1e-5)
    torch._dynamo.reset()


def test_meta_tensors() -> None:
    q = torch.empty(3, 4, 5, 8, device="meta", dtype=torch.bfloat16).transpose(0, 1)
    found = flash_attention(q, q, q)
    assert found.device.type == "meta" and found.shape == q.shape and found.is_contiguous()


def test_gradients_of_gradients_are_refused() -> None:
    q = random(1, 1, 4, 8).requires_grad_()
    (slope,) = torch.autograd.grad(flash_attention(q, q, q).sum(), q, create_graph=True)
    with pytest.raises(errors.NoBackwardError, match=r"no_grad"):
        slope.sum().backward()
    with torch.no_grad():
        assert not flash_attention(q, q, q).requires_grad


def test_gradients_of_the_gradient_of_the_bias_are_refused() -> None:
    q, bias = random(1, 1, 4, 8), random(4, 4).requires_grad_()
    (slope,) = torch.autograd.grad(flash_attention(q, q, q, bias=bias).sum(), bias, create_graph=True)
    with pytest.raises(errors.NoBackwardError, match=r"(?s)backward_with_bias.*no_grad"):
        slope.sum().backward()


Q = (2, 4, 6, 8)
WRONG: dict[str, tuple[type[Exception], str, Any]] = {
    "rank": (errors.ShapeError, "`q`", lambda q: (q[0], q, q)),
    "float64": (errors.DtypeError, "`q`", lambda q: (q.double(), q, q)),
    "mixed types": (errors.DtypeError, "`k`", lambda q: (q, q.bfloat16(), q.bfloat16())),
    "batch": (errors.ShapeError, "`k`", lambda q: (q, q[:1], q[:1])),
    "head dimension": (errors.ShapeError, "`v`", lambda q: (q, q, q[..., :4])),
    "lengths": (errors.ShapeError, "`v`", lambda q: (q, q, q[:, :, :3])),
    "heads": (errors.ShapeError, "`k`", lambda q: (q, q[:, :3], q[:, :3])),
    "more key heads": (errors.ShapeError, "`k`", lambda q: (q[:, :2], q, q)),
    "wide heads": (errors.ShapeError, "256", lambda q: (q.repeat(1, 1, 1, 33),) * 3),
    "sparse": (errors.ArgumentError, "`q`", lambda q: (q.to_sparse(), q, q)),
}


def ids(*shape: int) -> Any:
    return torch.zeros(shape, dtype=torch.int64)


WRONG_EXTRAS: dict[str, tuple[type[Exception], str, dict[str, Any]]] = {
    "window": (errors.ArgumentError, "`window`", {"window": 0}),
    "softcap": (errors.ArgumentError, "`softcap`", {"softcap": -1.0}),
    "scale": (errors.ArgumentError, "`scale`", {"scale": float("nan")}),
    "sinks": (errors.ShapeError, r"allowed: shape \[4\]", {"sinks": torch.zeros(3)}),
    "sinks of integers": (errors.DtypeError, "`sinks`", {"sinks": ids(4)}),
    "bias": (errors.ShapeError, "broadcasts", {"bias": torch.zeros(5, 6)}),
    "bias of 5 dimensions": (errors.ShapeError, "`bias`", {"bias": torch.zeros(1, 1, 1, 1, 1)}),
    "bool bias": (errors.DtypeError, "`bias`", {"bias": torch.ones(6, 6, dtype=torch.bool)}),
    "padding": (errors.ShapeError, "`key_padding_mask`", {"key_padding_mask": ids(2, 5).bool()}),
    "padding of numbers": (errors.DtypeError, "mask != 0", {"key_padding_mask": ids(2, 6)}),
    "one side": (errors.ArgumentError, "`q_segment_ids`", {"q_segment_ids": ids(2, 6)}),
    "the other": (errors.ArgumentError, "`kv_segment_ids`", {"kv_segment_ids": ids(2, 6)}),
    "segments": (errors.ShapeError, "`kv_s", {"q_segment_ids": ids(2, 6), "kv_segment_ids": ids(2, 7)}),
    "segments of floats": (errors.DtypeError, "integers", {"q_segment_ids": torch.zeros(2, 6)}),
}


@pytest.mark.parametrize("case", WRONG_EXTRAS)
def test_errors_of_the_other_arguments(case: str) -> None:
    kind, named, extras = WRONG_EXTRAS[case]
    q = random(*Q)
    with pytest.raises(kind, match=named):
        flash_attention(q, q, q, **extras)


@pytest.mark.parametrize("case", WRONG)
def test_errors_name_the_argument(case: str) -> None:
    kind, named, make = WRONG[case]
    with pytest.raises(kind, match=named) as caught:
        flash_attention(*make(random(*Q)))
    text = str(caught.value)
    assert "flash_attention" in text and "found:" in text and "allowed:" in text
    with pytest.raises(kind, match=named):
        flash_attention(*(t.to("meta") for t in make(random(*Q))))


def test_other_devices_are_refused() -> None:
    class Elsewhere(torch.Tensor):
        device = torch.device("cuda")

    q = random(*Q)
    with pytest.raises(errors.ArgumentError, match=r"bias.cpu\(\)"):
        flash_attention(q, q, q, bias=torch.zeros(1).as_subclass(Elsewhere))


def test_larger_batches_stage_nothing_new() -> None:
    q, k = random(1, 2, 50, 24), random(1, 1, 60, 24)
    flash_attention(q, k, k, causal=True)
    before = len(kernel._cache)
    for batch, key_heads in ((3, 1), (1, 4), (2, 5)):
        flash_attention(
            random(batch, 2 * key_heads, 50, 24), *[random(batch, key_heads, 60, 24)] * 2, causal=True
        )
    assert len(kernel._cache) == before


@pytest.mark.slow
def test_without_torch() -> None:
    """The package imports and its kernels run; the front door says what to install."""
    code = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else found(name, *rest)
sys.modules["torch"] = None
import numpy as np, nki_lib
from nki_lib.attention.flash_attention.kernel import flash_attention
x = np.ones((4, 8), np.float32)
assert np.allclose(flash_attention(x[None], x, x, 1.0, True), 1)
try:
    nki_lib.flash_attention(x, x, x)
except ImportError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "open-nki[torch]" in run.stdout, run.stderr
