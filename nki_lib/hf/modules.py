"""Norms, MLPs, linear layers, embeddings, routers and Mamba mixers of models, and what our kernels offer for each.

Every offer reads the module's parameters when it runs: training, `.to(...)` and loading weights go on working.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from nki_lib.hf.replacement import ROWS, Replacement, random_rows, untouched
from nki_lib.linear.matmul.api import matmul
from nki_lib.linear.mlp.api import mlp
from nki_lib.lookup.embedding.api import embedding
from nki_lib.moe.router_topk.api import router_topk
from nki_lib.norm.layer_norm.api import layer_norm
from nki_lib.norm.rms_norm.api import rms_norm
from nki_lib.quantization.torchao_weights import forward_of as torchao_forward
from nki_lib.sequence.depthwise_conv1d.api import depthwise_conv1d
from nki_lib.sequence.selective_scan.api import selective_scan

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
    "relu": functional.relu,
}


def activation_of(function: Any) -> str | None:
    """The name of an activation function that some module or function computes, found by its values."""
    points = torch.cat((torch.linspace(-6.0, 6.0, 97), torch.linspace(-200.0, 200.0, 81)))
    with torch.no_grad():
        values = function(points)
    for name, known in _ACTIVATIONS.items():
        if torch.allclose(values, known(points), rtol=0.0, atol=2e-6):
            return name
    return None


# ---- norms --------------------------------------------------------------------------------------------------------


def norms(module: nn.Module) -> Iterator[Replacement]:
    """LayerNorm and RMSNorm over the last axis, Gemma's with 1 added to the weight too."""
    if isinstance(module, nn.LayerNorm):
        if len(module.normalized_shape) == 1:
            yield Replacement("layer_norm", _layer_norm, _rows_of_weight)
        return
    weight = getattr(module, "weight", None)
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if (
        not type(module).__name__.endswith("RMSNorm")
        or not isinstance(weight, nn.Parameter)
        or weight.dim() != 1
    ):
        return
    eps = torch.finfo(weight.dtype).eps if eps is None else eps
    for offset in (0.0, 1.0):
        yield Replacement("rms_norm", partial(_rms_norm, eps=eps, offset=offset), _rows_of_weight)


def _layer_norm(module: Any, x: Tensor) -> Tensor:
    return layer_norm(x, module.weight, module.bias, module.eps)


def _rms_norm(module: Any, x: Tensor, eps: float, offset: float) -> Tensor:
    return rms_norm(x, module.weight, eps, offset=offset)


def _rows_of_weight(module: Any) -> tuple[Tensor]:
    return (random_rows(1, ROWS, module.weight.shape[-1], like=module.weight),)


# ---- matrices -----------------------------------------------------------------------------------------------------


def linears(module: nn.Module) -> Iterator[Replacement]:
    """nn.Linear itself, no subclass of it, with a plain weight or one that torchao has quantised."""
    if type(module) is not nn.Linear:
        return
    if type(module.weight) is nn.Parameter:
        yield Replacement("matmul", _linear, _rows_of_weight)
    elif (quantised := torchao_forward(module)) is not None:
        # Not tried: torchao cannot compute all of its formats on the CPU. What a weight means stands in its fields.
        yield Replacement("matmul, matmul_mx (torchao)", quantised, _rows_of_weight, tried=False)


def _linear(module: Any, x: Tensor) -> Tensor:
    return matmul(x, module.weight.mT, bias=module.bias)


def embeddings(module: nn.Module) -> Iterator[Replacement]:
    """nn.Embedding itself, no subclass of it."""
    if type(module) is nn.Embedding and not (module.max_norm or module.scale_grad_by_freq or module.sparse):
        yield Replacement("embedding", _embedding, _few_ids)


def _embedding(module: Any, ids: Tensor) -> Tensor:
    return embedding(ids, module.weight, padding_idx=module.padding_idx)


def _few_ids(module: Any) -> tuple[Tensor]:
    return (torch.arange(ROWS)[None] % module.num_embeddings,)


def mlps(module: nn.Module) -> Iterator[Replacement]:
    """Gated ones with gate_proj, up_proj and down_proj, plain ones with fc1 and fc2, and no other parameters."""
    function = getattr(module, "act_fn", getattr(module, "activation_fn", getattr(module, "act", None)))
    for names in (("up_proj", "down_proj", "gate_proj"), ("fc1", "fc2")):
        parts = [getattr(module, name, None) for name in names]
        held = {parameter for part in parts if type(part) is nn.Linear for parameter in part.parameters()}
        if not all(type(part) is nn.Linear for part in parts) or held != set(module.parameters()):
            continue
        activation = activation_of(function) if callable(function) else None
        if activation is not None:
            yield Replacement("mlp", partial(_mlp, names=names, activation=activation), _rows_of_mlp)


def _mlp(module: Any, x: Tensor, names: tuple[str, ...], activation: str) -> Tensor:
    parts = [getattr(module, name) for name in names]
    if not all(type(part) is nn.Linear and untouched(part) for part in parts):  # an adapter has come
        result: Tensor = type(module).forward(module, x)
        return result
    up, down, gate = (parts + [None])[:3]
    gated = {} if gate is None else {"gate": gate.weight, "gate_bias": gate.bias}
    return mlp(
        x, up.weight, down.weight, up_bias=up.bias, down_bias=down.bias, activation=activation, **gated
    )


def _rows_of_mlp(module: nn.Module) -> tuple[Tensor]:
    first = next(child for child in module.children() if isinstance(child, nn.Linear))
    return _rows_of_weight(first)


# ---- routers ------------------------------------------------------------------------------------------------------


def routers(module: nn.Module) -> Iterator[Replacement]:
    """Routers of Transformers 5: a matrix, top_k, and a result (logits, weights, experts)."""
    weight = getattr(module, "weight", None)
    if "router" not in type(module).__name__.lower() or not hasattr(module, "top_k"):
        return
    if not isinstance(weight, Tensor) or weight.dim() != 2:
        return
    dense = partial(_dense, experts=weight.shape[0])
    for options in _scores(module):
        yield Replacement(
            "matmul, router_topk",
            partial(_route, options=options),
            _rows_of_router,
            dense=dense,
            loud=False,
        )


def _scores(module: Any) -> Iterator[dict[str, Any]]:
    """Options of router_topk that may fit; which one does is found by trying."""
    if hasattr(module, "e_score_correction_bias"):
        groups = {"groups": module.num_group, "topk_groups": module.topk_group}
        scale = float(getattr(module, "routed_scaling_factor", 1.0))
        yield {"score": "sigmoid", "normalize": bool(module.norm_topk_prob), "scale": scale, **groups}
        return
    for score, normalize in (("softmax", True), ("softmax", False), ("topk_softmax", True)):
        yield {"score": score, "normalize": normalize}


def _route(module: Any, x: Tensor, options: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    rows, weight = x.reshape(-1, x.shape[-1]), module.weight
    correction = getattr(module, "e_score_correction_bias", None)
    if correction is not None:  # DeepSeek routes in float32
        rows, weight = rows.float(), weight.float()
    logits = matmul(rows, weight.mT, bias=getattr(module, "bias", None))
    scored = (
        logits.float() if type(module).__name__ == "MixtralTopKRouter" else logits
    )  # whose weights stay wide
    weights, experts = router_topk(scored, module.top_k, bias=correction, **options)
    return logits, weights, experts


def _rows_of_router(module: Any) -> tuple[Tensor]:
    return (random_rows(ROWS, module.weight.shape[-1], like=module.weight),)


def _dense(result: tuple[Tensor, Tensor, Tensor], experts: int) -> tuple[Tensor, Tensor]:
    """The weights in a row of all experts: their order in the result means nothing."""
    logits, weights, indices = result
    return logits, weights.new_zeros(weights.shape[0], experts).scatter_add_(1, indices, weights)


# ---- Mamba --------------------------------------------------------------------------------------------------------


def mixers(module: nn.Module) -> Iterator[Replacement]:
    """Mamba's: the model's own forward, with our functions under the names of its convolution and its scan."""
    forward = inspect.unwrap(type(module).forward)
    ours = {"causal_conv1d_fn": _convolve, "mamba_selective_scan": _scan}
    if not set(ours) <= set(forward.__code__.co_names):
        return
    inside = FunctionType(
        forward.__code__,
        {**forward.__globals__, **ours},
        "forward",
        forward.__defaults__,
        forward.__closure__,
    )
    inside.__kwdefaults__ = forward.__kwdefaults__
    yield Replacement(
        "depthwise_conv1d, selective_scan", inside, _rows_of_mixer, covers=("conv1d",), loud=False
    )


def _convolve(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str | None = None, **_: Any
) -> Tensor:
    return depthwise_conv1d(x, weight, bias, activation=activation)


def _scan(u: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, **options: Any) -> Any:
    known = ("D", "z", "delta_bias", "delta_softplus", "return_last_state")
    return selective_scan(u, delta, a, b, c, **{name: options[name] for name in known if name in options})


def _rows_of_mixer(module: Any) -> tuple[Tensor]:
    return (random_rows(1, ROWS, module.in_proj.weight.shape[1], like=module.in_proj.weight),)
