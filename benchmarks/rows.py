"""The rows of the table and the bars they are held to."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from benchmarks.harness import Row, ratio, seconds
from benchmarks.kernels import matmul, tiny
from nki.jit import Options

_SIZE = 1024
_LENGTH, _HEAD = 2048, 128
_TINY_COUNT = 20_000
_TIMED_COUNT = 100_000


def _matmul(dtype: Any, bar: float) -> Row:
    random = np.random.default_rng(0)
    lhs_t = random.standard_normal((_SIZE, _SIZE), np.float32)
    rhs = random.standard_normal((_SIZE, _SIZE), np.float32)
    out = np.empty((_SIZE, _SIZE), np.float32)
    a, b = lhs_t.astype(dtype), rhs.astype(dtype)
    value = ratio(lambda: matmul(a, b), lambda: np.matmul(lhs_t.T, rhs, out=out))
    return Row(f"matmul {_SIZE}^3 {np.dtype(dtype).name}, cached", value, "x NumPy f32", bar, at_most=True)


def _attention(dtype: str, bar: float) -> Row:
    import torch

    import nki_lib

    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 1, _LENGTH, _HEAD).to(getattr(torch, dtype)) for _ in range(3))
    plain = [x.float().numpy()[0, 0] for x in (q, k, v)]
    value = ratio(
        lambda: nki_lib.flash_attention(q, k, v, causal=True), lambda: full_square_attention(*plain)
    )
    return Row(
        f"causal attention S={_LENGTH} d={_HEAD} {dtype}, cached", value, "x NumPy f32", bar, at_most=True
    )


def full_square_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """softmax(q k^T / sqrt(d)) v over all keys, in place where NumPy can. q, k, v: [S, d] float32."""
    scores = q @ k.T
    scores *= np.float32(q.shape[1] ** -0.5)
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    total = scores.sum(axis=1, keepdims=True)
    return (scores @ v) / total


def _experts(dtype: str, bar: float) -> Row:
    import torch

    import nki_lib

    torch.manual_seed(0)
    tokens, experts, chosen, width = 2048, 8, 4, 1024
    x = torch.randn(tokens, width)
    gate_up, down = (torch.randn(experts, width, *n, width) / width**0.5 for n in ((2,), ()))
    weights, indices = nki_lib.router_topk(torch.randn(tokens, experts), chosen)
    ours = [t.to(getattr(torch, dtype)) for t in (x, gate_up, down, weights)]
    plain = [t.numpy() for t in (x, gate_up.flatten(2), down, weights, indices)]
    value = ratio(lambda: nki_lib.moe_prefill(*ours, indices), lambda: plain_experts(*plain))
    name = f"experts T={tokens}, {chosen} of {experts}, {width} x {width} {dtype}, cached"
    return Row(name, value, "x NumPy f32", bar, at_most=True)


def plain_experts(
    x: np.ndarray, gate_up: np.ndarray, down: np.ndarray, weights: np.ndarray, indices: np.ndarray
) -> np.ndarray:
    """Expert after expert: gather its tokens, two products, SwiGLU, scatter. gate_up [E, H, 2 I], down [E, I, H]."""
    out = np.zeros_like(x)
    for expert in range(len(down)):
        rows, places = np.nonzero(indices == expert)
        gate, up = np.split(x[rows] @ gate_up[expert], 2, axis=1)
        hidden = gate / (1 + np.exp(-gate)) * up
        out[rows] += hidden @ down[expert] * weights[rows, places][:, None]
    return out


def _attention_backward(dtype: str, bar: float) -> Row:
    import torch

    import nki_lib

    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 1, _LENGTH, _HEAD).to(getattr(torch, dtype)).requires_grad_() for _ in range(3))
    grad = torch.randn(1, 1, _LENGTH, _HEAD).to(q.dtype)
    out = nki_lib.flash_attention(q, k, v, causal=True)
    plain = [x.detach().float().numpy()[0, 0] for x in (q, k, v, grad)]
    value = ratio(
        lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True),
        lambda: full_square_backward(*plain),
    )
    return Row(f"its backward S={_LENGTH} d={_HEAD} {dtype}, cached", value, "x NumPy f32", bar, at_most=True)


def full_square_backward(q: np.ndarray, k: np.ndarray, v: np.ndarray, grad: np.ndarray) -> tuple[Any, ...]:
    """The gradients of `full_square_attention`, the weights computed again. q, k, v, grad: [S, d] float32."""
    scale = np.float32(q.shape[1] ** -0.5)
    weights = q @ k.T
    weights *= scale
    weights -= weights.max(axis=1, keepdims=True)
    np.exp(weights, out=weights)
    weights /= weights.sum(axis=1, keepdims=True)
    shift = (grad * (weights @ v)).sum(axis=1, keepdims=True)
    scores = grad @ v.T
    scores -= shift
    scores *= weights
    return scores @ k * scale, scores.T @ q * scale, weights.T @ grad


def _tiny() -> Row:
    a = np.ones((32, 8), np.float32)
    rate = _TINY_COUNT / seconds(lambda: tiny(a, _TINY_COUNT))
    return Row("tiny instructions, cached plan", rate / 1e6, "M/s", 1.0, at_most=False)


def _staging() -> Row:
    """Staging, verification, passes, dependencies and the plan, from nothing."""
    a = np.ones((32, 8), np.float32)

    def stage(count: int) -> float:
        start = time.perf_counter()
        compiled = tiny.compiled(Options(), (a, count), {})
        assert compiled.waits and compiled.plan.calls
        return count / (time.perf_counter() - start)

    rate = max(stage(_TINY_COUNT + extra) for extra in range(1, 4))
    return Row("staging, checks, dependencies, plan", rate / 1e3, "k instr/s", 20.0, at_most=False)


def _timing() -> Row:
    compiled = tiny.compiled(Options(), (np.ones((32, 8), np.float32), _TIMED_COUNT), {})
    assert compiled.waits
    start = time.perf_counter()
    compiled.timeline()
    rate = _TIMED_COUNT / (time.perf_counter() - start)
    return Row("timing of a finished program", rate / 1e3, "k instr/s", 100.0, at_most=False)


def _torch_overhead() -> Row:
    import torch

    from nki.torch import nki_op

    operator = nki_op("nki_benchmarks::tiny", tiny, schema="(Tensor a, int count) -> Tensor")
    a = torch.ones(32, 8)
    array = a.numpy()
    plan = tiny.compiled(Options(), (array, 1), {}).plan
    whole = seconds(lambda: operator(a, 1), 200)
    from interpreter.execute import execute

    names = [b.name for b in (*plan.program.arguments, *plan.program.results)]
    alone = seconds(lambda: execute(plan, {names[0]: array, names[1]: np.empty_like(array)}), 200)
    return Row("torch op overhead beyond the kernel", (whole - alone) * 1e6, "us a call", 200.0, at_most=True)


def _import() -> Row:
    code = "import time; s = time.perf_counter(); import nki; print(time.perf_counter() - s)"
    command = [sys.executable, "-c", code]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    runs = [subprocess.run(command, capture_output=True, check=True, env=environment) for _ in range(6)]
    times = [float(run.stdout) for run in runs[1:]]  # the first one may have to compile
    return Row("import nki", min(times), "s", 0.3, at_most=True)


ROWS: dict[str, Callable[[], Row]] = {
    "matmul_f32": lambda: _matmul(np.float32, 1.3),
    "matmul_bf16": lambda: _matmul(ml_dtypes.bfloat16, 1.5),
    "attention_f32": lambda: _attention("float32", 1.2),
    "attention_bf16": lambda: _attention("bfloat16", 1.2),
    "backward_f32": lambda: _attention_backward("float32", 1.4),
    "backward_bf16": lambda: _attention_backward("bfloat16", 1.4),
    "experts_f32": lambda: _experts("float32", 1.5),
    "experts_bf16": lambda: _experts("bfloat16", 1.5),
    "tiny": _tiny,
    "staging": _staging,
    "timing": _timing,
    "torch_overhead": _torch_overhead,
    "import": _import,
}
