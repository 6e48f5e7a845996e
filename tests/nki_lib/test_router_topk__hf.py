"""The router beside those of Transformers: equal experts, equal weights, and the same balancing loss."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from torch import Tensor  # noqa: E402

import nki_lib.moe.router_topk.api as api  # noqa: E402

SIZES = {"hidden_size": 24, "num_experts_per_tok": 4}
ROUTERS: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "mixtral": ("Mixtral", "MixtralTopKRouter", {"num_local_experts": 16}, {"score": "softmax"}),
    "qwen3_moe": (
        "Qwen3Moe",
        "Qwen3MoeTopKRouter",
        {"num_experts": 16, "norm_topk_prob": True},
        {"score": "softmax"},
    ),
    "qwen3_moe, plain": (
        "Qwen3Moe",
        "Qwen3MoeTopKRouter",
        {"num_experts": 16, "norm_topk_prob": False},
        {"score": "softmax", "normalize": False},
    ),
    "gpt_oss": ("GptOss", "GptOssTopKRouter", {"num_local_experts": 16}, {"score": "topk_softmax"}),
    "deepseek_v3": (
        "DeepseekV3",
        "DeepseekV3TopkRouter",
        {"n_routed_experts": 16, "n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5},
        {"score": "sigmoid", "groups": 4, "topk_groups": 2, "scale": 2.5},
    ),
}


def router_of(name: str) -> tuple[Any, dict[str, Any]]:
    """The module with random weights, and the options of ours."""
    prefix, router, sizes, options = ROUTERS[name]
    package = f"transformers.models.{name.split(',')[0]}"
    module = importlib.import_module(f"{package}.modeling_{name.split(',')[0]}")
    config = importlib.import_module(f"{package}.configuration_{name.split(',')[0]}")
    made = getattr(module, router)(getattr(config, f"{prefix}Config")(**SIZES, **sizes))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor in (*made.parameters(), *made.buffers()):
            tensor.copy_(0.4 * torch.randn(tensor.shape, generator=generator))
    if name == "deepseek_v3":
        options = {**options, "bias": made.e_score_correction_bias}
    return made, options


@pytest.mark.parametrize("name", ROUTERS)
def test_same_experts_and_weights(name: str) -> None:
    """Both compute in float32: a few of its roundoffs apart."""
    router, options = router_of(name)
    hidden = torch.randn(200, 24, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        logits, expected, chosen = router(hidden)
    weights, indices = api.router_topk(logits, 4, **options)
    if name == "deepseek_v3":  # returns its experts in any order
        (indices, order), (chosen, other) = indices.sort(1), chosen.sort(1)
        weights, expected = weights.gather(1, order), expected.gather(1, other)
    assert torch.equal(indices, chosen)
    assert torch.allclose(weights, expected, rtol=4e-6, atol=0)


@pytest.mark.parametrize("name", [name for name in ROUTERS if name != "deepseek_v3"])
def test_in_bfloat16(name: str) -> None:
    """Rounded once to bfloat16 here; there the softmax may be computed in it."""
    router, options = router_of(name)
    hidden = torch.randn(200, 24, generator=torch.Generator().manual_seed(1)).bfloat16()
    with torch.no_grad():
        logits, expected, chosen = router.bfloat16()(hidden)
    best = logits.topk(5).values
    apart = (best.diff(dim=1) != 0).all(1)
    weights, indices = api.router_topk(logits, 4, **options)
    assert apart.any() and torch.equal(indices[apart], chosen[apart])
    assert torch.allclose(weights[apart].float(), expected[apart].float(), rtol=2**-6)


@pytest.mark.parametrize("name", ["mixtral", "qwen3_moe", "gpt_oss"])
def test_same_balancing_loss_and_gradient(name: str) -> None:
    module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")

    def both(logits: Tensor) -> tuple[Tensor, Tensor]:
        ours = api.router_topk(logits, 4, return_losses=True, **ROUTERS[name][3])[2]
        return ours, module.load_balancing_loss_func((logits,), 16, 4)

    logits = torch.randn(300, 16, generator=torch.Generator().manual_seed(2)).requires_grad_()
    ours, theirs = both(logits)
    assert torch.allclose(ours, theirs, rtol=1e-6)
    mine, true = (torch.autograd.grad(loss, logits)[0] for loss in (ours, theirs))
    assert torch.allclose(mine, true, rtol=1e-4, atol=1e-8)
