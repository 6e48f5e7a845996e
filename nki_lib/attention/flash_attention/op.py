"""The operators behind `nki_lib.flash_attention`, as PyTorch sees them: schemas, fakes, gradients.

* `torch.ops.nki_lib.flash_attention`: the attention alone. Its gradient computes it once more.
* `torch.ops.nki_lib.flash_attention_with_lse`: also the log sum exp, which the gradient starts from.
* `torch.ops.nki_lib.flash_attention_backward`: the gradients of q, k and v; it has none itself.
* `torch.ops.nki_lib.flash_attention_backward_with_bias`: also that of a bias, which costs a matrix of scores in memory.

The work is in `launches.py`, what is accepted in `arguments.py`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nki.torch import nki_op
from nki_lib.attention.flash_attention import launches
from nki_lib.attention.flash_attention.arguments import Extras, check_arguments

_TENSORS = ("sinks", "bias", "key_padding_mask", "q_segment_ids", "kv_segment_ids")
_SCHEMA = (
    "Tensor q, Tensor k, Tensor v, "
    + ", ".join(f"Tensor? {name}=None" for name in _TENSORS)
    + ", *, bool causal=False, float? scale=None, SymInt? window=None, float? softcap=None"
)
_SCHEMA_WITH_BIAS = _SCHEMA.replace("Tensor? sinks=None, Tensor? bias=None", "Tensor? sinks, Tensor bias")
"""The same for a bias that has to be there."""
_RESULTS_OF_FORWARD = "Tensor grad, Tensor? grad_lse, Tensor out, Tensor lse"


def _extras(tensors: tuple[Any, ...], numbers: dict[str, Any]) -> Extras:
    return Extras(**dict(zip(_TENSORS, tensors)), **numbers)


def _fake(q: Tensor, k: Tensor, v: Tensor, *tensors: Any, **numbers: Any) -> Tensor:
    check_arguments(q, k, v, _extras(tensors, numbers))
    return q.new_empty(q.shape)


@nki_op("nki_lib::flash_attention", fake=_fake, schema=f"({_SCHEMA}) -> Tensor")
def flash_attention(q: Tensor, k: Tensor, v: Tensor, *tensors: Any, **numbers: Any) -> Tensor:
    """softmax(scores) v; `nki_lib.flash_attention` explains the arguments."""
    extras = _extras(tensors, numbers)
    check_arguments(q, k, v, extras)
    return launches.forward(q, k, v, extras, with_lse=False)[0]


def _fake_with_lse(q: Tensor, k: Tensor, v: Tensor, *tensors: Any, **numbers: Any) -> tuple[Tensor, Tensor]:
    return _fake(q, k, v, *tensors, **numbers), q.new_empty(q.shape[:3], dtype=torch.float32)


@nki_op("nki_lib::flash_attention_with_lse", fake=_fake_with_lse, schema=f"({_SCHEMA}) -> (Tensor, Tensor)")
def flash_attention_with_lse(
    q: Tensor, k: Tensor, v: Tensor, *tensors: Any, **numbers: Any
) -> tuple[Tensor, Tensor]:
    """The same, and the log sum exp of each query's scores, [B, Hq, Sq] in float32."""
    extras = _extras(tensors, numbers)
    check_arguments(q, k, v, extras)
    out, lse = launches.forward(q, k, v, extras, with_lse=True)
    assert lse is not None
    return out, lse


def _fake_backward(
    grad: Tensor, grad_lse: Any, out: Tensor, lse: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any, **__: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


@nki_op(
    "nki_lib::flash_attention_backward",
    fake=_fake_backward,
    schema=f"({_RESULTS_OF_FORWARD}, {_SCHEMA}) -> (Tensor, Tensor, Tensor)",
)
def flash_attention_backward(
    grad: Tensor,
    grad_lse: Tensor | None,
    out: Tensor,
    lse: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *tensors: Any,
    **numbers: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v from those of the attention and of the log sum exp."""
    dq, dk, dv = launches.backward(grad, grad_lse, (q, k, v, out, lse), _extras(tensors, numbers))
    return dq, dk, dv


def _fake_backward_with_bias(*tensors: Any, **_: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    bias = tensors[8]
    return *_fake_backward(*tensors), bias.new_empty(bias.shape)


@nki_op(
    "nki_lib::flash_attention_backward_with_bias",
    fake=_fake_backward_with_bias,
    schema=f"({_RESULTS_OF_FORWARD}, {_SCHEMA_WITH_BIAS}) -> (Tensor, Tensor, Tensor, Tensor)",
)
def flash_attention_backward_with_bias(
    grad: Tensor,
    grad_lse: Tensor | None,
    out: Tensor,
    lse: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *tensors: Any,
    **numbers: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of q, k and v, the same bits, and that of the bias, in its shape and dtype."""
    extras = _extras(tensors, numbers)
    dq, dk, dv, dbias = launches.backward(grad, grad_lse, (q, k, v, out, lse), extras, with_bias=True)
    return dq, dk, dv, dbias


# ---- gradients ----------------------------------------------------------------------------------------------------


def _remember(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Any) -> None:
    results = output if isinstance(output, tuple) else ()
    ctx.save_for_backward(*inputs, *results)
    ctx.numbers = keyword_only_inputs
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, grad: Tensor | None, grad_lse: Tensor | None = None) -> tuple[Any, ...]:
    saved = ctx.saved_tensors  # once: activation checkpointing computes them again when they are asked for
    inputs, results = saved[: 3 + len(_TENSORS)], saved[3 + len(_TENSORS) :]
    needed = dict(zip(("q", "k", "v", *_TENSORS), ctx.needs_input_grad))  # shorter if the last were left out
    out, lse = results or OPERATOR_WITH_LSE(*inputs, **ctx.numbers)
    grad = torch.zeros_like(out) if grad is None else grad
    way_back = OPERATOR_BACKWARD_WITH_BIAS if needed.get("bias") else OPERATOR_BACKWARD
    dq, dk, dv, *dbias = way_back(grad, grad_lse, out, lse, *inputs, **ctx.numbers)
    dsinks = _gradient_of_sinks(inputs[3], lse, grad, out, grad_lse) if needed.get("sinks") else None
    return (dq, dk, dv, dsinks, *(dbias or [None]), *[None] * (len(_TENSORS) - 2))


def _gradient_of_sinks(
    sinks: Tensor, lse: Tensor, grad: Tensor, out: Tensor, grad_lse: Tensor | None
) -> Tensor:
    """A sink takes its share exp(sink - lse) from what all keys give, and adds that share of the log sum exp."""
    lost = (grad.float() * out.float()).sum(-1)
    if grad_lse is not None:
        lost = lost - grad_lse
    share = torch.exp(sinks.float()[:, None] - lse).masked_fill(lse == float("-inf"), 0.0)
    return -(share * lost).sum((0, 2)).to(sinks.dtype)


flash_attention.register_autograd(_gradients, setup_context=_remember)
flash_attention_with_lse.register_autograd(_gradients, setup_context=_remember)

OPERATOR = torch.ops.nki_lib.flash_attention.default
"""The attention alone."""

OPERATOR_WITH_LSE = torch.ops.nki_lib.flash_attention_with_lse.default
"""The attention and the log sum exp."""

OPERATOR_BACKWARD = torch.ops.nki_lib.flash_attention_backward.default
"""The gradients of q, k and v."""

OPERATOR_BACKWARD_WITH_BIAS = torch.ops.nki_lib.flash_attention_backward_with_bias.default
"""The gradients of q, k, v and a bias."""
