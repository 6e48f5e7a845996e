"""Tiny Transformers models for the tests of `nki_lib.hf`: two layers, width 64, four heads of 16 on two key heads."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from torch import Tensor

WINDOW = 7
SHAPE = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
GROUPED = {**SHAPE, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 128}
LOCAL = {**GROUPED, "sliding_window": WINDOW}
EXPERTS = {"num_local_experts": 2, "num_experts_per_tok": 2}
MANY_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 48}
LATENT = {
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
}

DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("LlamaConfig", GROUPED),
    "Qwen3": ("Qwen3Config", GROUPED),
    "Gemma2": ("Gemma2Config", {**LOCAL, "attn_logit_softcapping": 5.0, "query_pre_attn_scalar": 16}),
    "GptOss": (
        "GptOssConfig",
        {**LOCAL, **EXPERTS, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
    ),
}
"""Models whose attention is tested by itself."""

BLOCKS: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": DECODERS["Llama"],
    "GptOss": DECODERS["GptOss"],
    "Mixtral": ("MixtralConfig", {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "Qwen3Moe": ("Qwen3MoeConfig", {**GROUPED, **MANY_EXPERTS, "num_experts": 8, "norm_topk_prob": True}),
    "DeepseekV3": (
        "DeepseekV3Config",
        {
            **SHAPE,
            **MANY_EXPERTS,
            **LATENT,
            "num_key_value_heads": 4,
            "max_position_embeddings": 128,
            "n_routed_experts": 8,
            "n_shared_experts": 1,
            "n_group": 2,
            "topk_group": 1,
            "first_k_dense_replace": 1,
        },
    ),
    "Mamba": (
        "MambaConfig",
        {
            **{name: SHAPE[name] for name in ("vocab_size", "hidden_size", "num_hidden_layers")},
            "state_size": 8,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": None,
        },
    ),
}
"""Models of which all heavy modules are swapped."""


def decoder(name: str, spread: float = 0.08) -> Any:
    """A causal language model in float32, with weights large enough for attention to matter."""
    config, arguments = (DECODERS | BLOCKS)[name]
    model = getattr(transformers, f"{name}ForCausalLM")(getattr(transformers, config)(**arguments))
    return spread_out(model, spread)


def encoder(name: str, **arguments: Any) -> Any:
    """A model without a language head, e.g. "Bert"."""
    config = getattr(transformers, f"{name}Config")(**arguments)
    return spread_out(getattr(transformers, f"{name}Model")(config), 0.08)


def spread_out(model: Any, spread: float) -> Any:
    """The model in evaluation mode with normally distributed matrices, sinks and biases of routers."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 or "sinks" in name or "router.bias" in name:
                parameter.normal_(0.0, spread, generator=generator)
    return model.eval()


def tokens(batch: int, length: int) -> Tensor:
    """Token ids that are no special ones."""
    return torch.randint(2, 256, (batch, length), generator=torch.Generator().manual_seed(batch * length))


def left_padded(ids: Tensor, count: int) -> Tensor:
    """The attention mask that hides the first `count` tokens of the last sequence."""
    mask = torch.ones_like(ids)
    mask[-1, :count] = 0
    return mask


def both(model: Any, run: Any) -> tuple[Any, Any]:
    """What `run(model)` gives with the attention of PyTorch ("eager") and with ours."""
    results = []
    for name in ("eager", "nki"):
        model.set_attn_implementation(name)
        with torch.no_grad():
            results.append(run(model))
    return results[0], results[1]
