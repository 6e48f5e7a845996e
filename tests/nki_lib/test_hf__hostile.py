"""Modules that look like what our kernels compute but are something else, and models that people have changed."""

from __future__ import annotations

import io
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from torch import Tensor, nn  # noqa: E402

import nki_lib  # noqa: E402
from tests.nki_lib.hf_models import GROUPED, decoder, spread_out, tokens  # noqa: E402


class Gated(nn.Module):
    """Named like an MLP of Llama, with what models add to it."""

    def __init__(self, limit: float | None = None, dropout: float = 0.0, sparse: bool = False) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(32, 48, bias=False), nn.Linear(32, 48, bias=False)
        self.down_proj, self.act_fn = nn.Linear(48, 32, bias=False), nn.SiLU()
        self.bound, self.residual_dropout, self.sparse = limit, dropout, sparse

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_proj(x), self.up_proj(x)
        if self.bound is not None:
            gate, up = gate.clamp(max=self.bound), up.clamp(-self.bound, self.bound)
        if self.sparse:
            gate = gate * (gate > gate.mean())
        hidden = nn.functional.dropout(self.act_fn(gate) * up, self.residual_dropout, self.training)
        return self.down_proj(hidden)


def names_swapped(report: Any) -> set[str]:
    return {swap.name for swap in report.swapped}


@pytest.mark.parametrize("options", [{"limit": 10.0}, {"dropout": 0.1}], ids=str)
def test_an_mlp_that_does_more_is_left(options: dict[str, float]) -> None:
    report = nki_lib.hf.use_kernels(nn.Sequential(Gated(**options)), ["mlp"])
    assert report.swapped == [] and report.left[0].found == "Gated"


def test_modules_of_one_class_are_judged_by_what_they_hold() -> None:
    model = nn.Sequential(Gated(), Gated(sparse=True), Gated())
    assert names_swapped(nki_lib.hf.use_kernels(model, ["mlp"])) == {"0", "2"}


@pytest.mark.parametrize("act", ["relu6", "gelu_10"])
def test_an_activation_with_a_bound_is_no_activation_of_ours(act: str) -> None:
    config = transformers.LlamaConfig(**GROUPED | {"hidden_act": act})
    report = nki_lib.hf.use_kernels(spread_out(transformers.LlamaForCausalLM(config), 0.08))
    assert not any(swap.kernel == "mlp" for swap in report.swapped)


def test_hooks_inside_a_module_keep_it_as_it_is() -> None:
    model, ids, seen = decoder("Llama"), tokens(1, 5), []
    model.model.layers[1].mlp.down_proj.register_forward_hook(lambda *_: seen.append(1))
    report = nki_lib.hf.use_kernels(model)
    assert seen == [] and "hooks" in str(report)
    model(ids)
    assert seen == [1]


def test_an_adapter_that_comes_later_is_called() -> None:
    class Adapter(nn.Module):
        def __init__(self, base: nn.Linear) -> None:
            super().__init__()
            self.base, self.weight, self.bias = base, base.weight, base.bias

        def forward(self, x: Tensor) -> Tensor:
            return self.base(x) * 3.0

    model, ids = decoder("Llama"), tokens(1, 5)
    report = nki_lib.hf.use_kernels(model)
    mlp = model.model.layers[0].mlp
    mlp.down_proj = Adapter(mlp.down_proj)
    with torch.no_grad():
        found = model(ids).logits
        report.undo()
        torch.testing.assert_close(found, model(ids).logits, atol=1e-5, rtol=0)


def test_biases_of_experts_change_and_train() -> None:
    model, ids = decoder("GptOss"), tokens(1, 5)
    report = nki_lib.hf.use_kernels(model)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("gate_up_proj_bias" in name)
    with torch.no_grad():
        model(ids)
        for name, parameter in model.named_parameters():
            if "gate_up_proj_bias" in name:
                parameter.normal_(0, 1, generator=torch.Generator().manual_seed(1))
        found = model(ids).logits
    model(ids, labels=ids).loss.backward()
    gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    report.undo()
    model.zero_grad()
    torch.testing.assert_close(found, model(ids).logits.detach(), atol=1e-5, rtol=0)
    model(ids, labels=ids).loss.backward()
    assert len(gradients) == 2
    for name, expected in gradients.items():
        torch.testing.assert_close(model.get_parameter(name).grad, expected, atol=1e-6, rtol=1e-4)
    assert not any("_nki_lib_layout" in module.__dict__ for module in model.modules())


def test_inference_mode_leaves_nothing_that_training_stumbles_over() -> None:
    model, ids = decoder("Mixtral"), tokens(1, 5)
    nki_lib.hf.use_kernels(model)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("q_proj" in name)
    with torch.inference_mode():
        model(ids)
    model(ids, labels=ids).loss.backward()
    assert model.model.layers[0].self_attn.q_proj.weight.grad is not None


def test_a_norm_whose_weight_is_no_parameter_is_left() -> None:
    class WeightlessRMSNorm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.eps = nn.Buffer(torch.ones(8)), 1e-6

        def forward(self, x: Tensor) -> Tensor:
            return x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt()

    norm = WeightlessRMSNorm()
    assert nki_lib.hf.use_kernels(nn.Sequential(norm)).swapped == []
    assert norm(torch.ones(2, 3)).shape == (2, 3)


@pytest.mark.parametrize("name", ["GPT2", "T5"])
def test_dropout_of_attention_is_known_by_all_its_names(name: str) -> None:
    sizes = {
        "GPT2": {"n_embd": 32, "n_layer": 1, "n_head": 2},
        "T5": {"d_model": 32, "num_layers": 1, "d_ff": 32},
    }
    config = getattr(transformers, f"{name}Config")(vocab_size=64, **sizes[name])
    model = getattr(transformers, f"{name}Model")(config)
    assert "a dropout of 0.1" in str(nki_lib.hf.use_kernels(model.train(), ["attention"]))
    assert nki_lib.hf.use_kernels(model.eval(), ["attention"]).swapped


def test_a_trial_leaves_no_trace() -> None:
    model = decoder("Llama").train()
    model.model.layers[0].mlp.down_proj.eval()
    flags = [module.training for module in model.modules()]
    nki_lib.hf.use_kernels(model)
    assert [module.training for module in model.modules()] == flags


def test_a_swapped_model_can_be_pickled() -> None:
    model, ids, file = decoder("Mixtral"), tokens(1, 5), io.BytesIO()
    nki_lib.hf.use_kernels(model)
    torch.save(model, file)
    file.seek(0)
    twin = torch.load(file, weights_only=False)
    with torch.no_grad():
        assert torch.equal(twin(ids).logits, model(ids).logits)


def test_a_model_inside_a_module_is_found() -> None:
    report = nki_lib.hf.use_kernels(nn.ModuleDict({"inner": decoder("Llama")}))
    assert {"inner.model.layers.0.self_attn", "inner.loss_function"} <= names_swapped(report)


def test_an_expert_after_the_last_stands_for_none() -> None:
    model = decoder("Mixtral")
    model.set_experts_implementation("eager")  # another one leaves what lay in memory in such rows
    experts = model.model.layers[0].mlp.experts
    x, chosen = torch.randn(3, 64), torch.tensor([[0, 4], [4, 4], [1, 2]])
    weights = torch.rand(3, 2)
    with torch.no_grad():
        expected = experts(x, chosen, weights)
        nki_lib.hf.use_kernels(nn.Sequential(experts), ["moe"])
        torch.testing.assert_close(experts(x, chosen, weights), expected, atol=1e-5, rtol=1e-5)
