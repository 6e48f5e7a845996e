"""The experts of Transformers' mixture-of-experts models on our kernels.

Models keep the matrices of all experts in two parameters, in four layouts; the kernels read one. While nothing needs a
gradient the other layout is made once and kept beside the parameters, until they change.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from nki_lib.hf.modules import activation_of
from nki_lib.hf.replacement import ROWS, Replacement, random_rows
from nki_lib.moe.moe_decode.api import moe_decode
from nki_lib.moe.moe_prefill.api import moe_prefill

MOST_TOKENS = 32
"""Up to so many tokens without a gradient go to `moe_decode`."""

KEPT = "_nki_lib_layout"
"""Where a module keeps its matrices in the layout of the kernels."""


def experts(module: nn.Module) -> Iterator[Replacement]:
    """Modules made by Transformers' `use_experts_implementation`, with a gate and without a norm of their own."""
    if not getattr(module, "has_gate", False) or not hasattr(module, "gate_up_proj"):
        return
    if getattr(module, "has_post_expert_norm", False):
        return
    options = _activation(module)
    if options is not None:
        forward = partial(run_experts, options=options)
        yield Replacement("moe_prefill, moe_decode", forward, _few_tokens)


def _activation(module: Any) -> dict[str, Any] | None:
    """How the gate is applied, as the kernels' keywords."""
    if hasattr(module, "alpha") and hasattr(module, "limit"):
        return {"activation": "clamped_swiglu", "alpha": float(module.alpha), "limit": float(module.limit)}
    function = getattr(module, "act_fn", None)
    name = None if function is None else activation_of(function)
    known = {"silu": "swiglu", "gelu": "geglu", "gelu_tanh": "geglu_tanh"}
    return {"activation": known[name]} if name in known else None


def run_experts(
    module: Any, hidden_states: Tensor, indices: Tensor, weights: Tensor, options: dict[str, Any]
) -> Tensor:
    """What Transformers calls: hidden_states [T, H], the chosen experts [T, k] and their weights -> [T, H].

    An expert after the last stands for none, as in Transformers' own loop.
    """
    gate_up, down, gate_up_bias, down_bias = _matrices(module)
    given = (hidden_states, weights, *_sources(module))
    training = torch.is_grad_enabled() and any(t.requires_grad for t in given)
    run = moe_prefill if training or hidden_states.shape[0] > MOST_TOKENS else moe_decode
    biases = {"gate_up_bias": gate_up_bias, "down_bias": down_bias}
    weights = weights.to(hidden_states.dtype)
    return run(hidden_states, gate_up, down, weights, indices, first_expert=0, **biases, **options)


def _sources(module: Any) -> list[Tensor]:
    """The parameters that the layout of the kernels is made of."""
    names = ("gate_up_proj", "down_proj", "gate_up_proj_bias", "down_proj_bias")
    return [getattr(module, name) for name in names[: 4 if module.has_bias else 2]]


def _matrices(module: Any) -> tuple[Any, ...]:
    """gate_up [E, H, 2, I], down [E, I, H] and their biases [E, 2, I] and [E, H] or None."""
    sources = _sources(module)
    trained = torch.is_grad_enabled() and any(source.requires_grad for source in sources)
    if trained or torch.compiler.is_compiling() or any(source.is_inference() for source in sources):
        return _laid_out(module)
    state = [(source.data_ptr(), source._version, source.dtype) for source in sources]
    kept = module.__dict__.get(KEPT)
    if kept is None or kept[0] != state:
        with torch.inference_mode(False), torch.no_grad():  # what is kept may serve a training step later
            kept = module.__dict__[KEPT] = (state, _laid_out(module))
    return kept[1]


def _laid_out(module: Any) -> tuple[Any, ...]:
    gate_up, down = module.gate_up_proj, module.down_proj
    pair, bias, down_bias = (2, -1) if module.is_concatenated else (-1, 2), None, None
    if module.is_transposed:
        gate_up = gate_up.unflatten(2, pair)
        gate_up = gate_up if module.is_concatenated else gate_up.transpose(2, 3)
    else:
        gate_up = gate_up.unflatten(1, pair)
        gate_up = (gate_up if module.is_concatenated else gate_up.transpose(1, 2)).permute(0, 3, 1, 2)
        down = down.transpose(1, 2)
    if module.has_bias:
        bias = module.gate_up_proj_bias.unflatten(1, pair)
        bias = bias if module.is_concatenated else bias.transpose(1, 2)
        down_bias = module.down_proj_bias
    return gate_up.contiguous(), down.contiguous(), None if bias is None else bias.contiguous(), down_bias


def _few_tokens(module: Any) -> tuple[Tensor, Tensor, Tensor]:
    weight = module.gate_up_proj
    count, width = weight.shape[0], weight.shape[1 if module.is_transposed else 2]
    chosen = min(2, count)
    indices = (torch.arange(ROWS)[:, None] + torch.arange(chosen)) % count
    weights = random_rows(ROWS, chosen, like=weight).abs()
    return random_rows(ROWS, width, like=weight), indices, weights
