"""Which modules `use_kernels` takes and which it leaves, and what it says of them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from torch import Tensor, nn  # noqa: E402

import nki_lib  # noqa: E402
from nki import errors  # noqa: E402
from nki_lib.hf.modules import activation_of  # noqa: E402
from tests.nki_lib.hf_models import decoder, encoder, tokens  # noqa: E402


class TwistedRMSNorm(nn.Module):
    """Named like a norm, but the mean is of absolute values."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))
        self.eps = 1e-6

    def forward(self, x: Tensor) -> Tensor:
        return x / (x.abs().mean(-1, keepdim=True) + self.eps) * self.weight


class GemmaLikeRMSNorm(TwistedRMSNorm):
    """Adds 1 to the weight."""

    def forward(self, x: Tensor) -> Tensor:
        return x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt() * (1.0 + self.weight)


class Doubled(nn.Linear):
    """A subclass of a module that is known."""

    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


def only(module: nn.Module, kinds: Any = nki_lib.hf.KINDS) -> Any:
    return nki_lib.hf.use_kernels(nn.Sequential(module), kinds)


def test_a_norm_that_computes_something_else_is_left() -> None:
    report = only(TwistedRMSNorm())
    assert report.swapped == []
    assert [left.found for left in report.left] == ["TwistedRMSNorm"]
    assert "something else than rms_norm" in report.left[0].why


def test_a_norm_is_known_by_what_it_computes() -> None:
    norm, x = GemmaLikeRMSNorm(), torch.randn(3, 8)
    expected = norm(x)
    assert [swap.kernel for swap in only(norm).swapped] == ["rms_norm"]
    torch.testing.assert_close(norm(x), expected)


@pytest.mark.parametrize(
    "module",
    [Doubled(4, 4), nn.Conv2d(1, 1, 3), nn.Linear(4, 4, dtype=torch.float64), nn.Linear(4, 4, device="meta")],
    ids=["subclass", "no kernel", "float64", "meta"],
)
def test_modules_that_are_left(module: nn.Module) -> None:
    report = only(module)
    assert report.swapped == [] and len(report.left) == 1 and report.left[0].why
    assert "forward" not in module.__dict__


def test_parameters_may_change_and_move() -> None:
    linear, x = nn.Linear(8, 4), torch.randn(3, 8)
    only(linear)
    with torch.no_grad():
        linear.weight.mul_(3.0)
    torch.testing.assert_close(linear(x), nn.functional.linear(x, linear.weight, linear.bias))
    linear.bfloat16()
    assert linear(x.bfloat16()).dtype == torch.bfloat16


def test_a_second_call_leaves_what_is_swapped() -> None:
    model = decoder("Llama")
    first = nki_lib.hf.use_kernels(model)
    second = nki_lib.hf.use_kernels(model)
    assert second.swapped == []
    assert "its forward is replaced already" in str(second) and 'set to "nki" already' in str(second)
    second.undo()
    first.undo()
    assert not any("forward" in module.__dict__ for module in model.modules())


def test_kinds() -> None:
    model = decoder("Llama")
    report = nki_lib.hf.use_kernels(model, ["norm"])
    assert {swap.kernel for swap in report.swapped} == {"rms_norm"}
    report.undo()
    with pytest.raises(errors.ArgumentError, match="'norms'") as found:
        nki_lib.hf.use_kernels(model, ["norms"])
    assert "router" in str(found.value)
    with pytest.raises(errors.ArgumentError, match="model"):
        nki_lib.hf.use_kernels("Llama")  # type: ignore[arg-type]


def test_dropout_keeps_the_attention_as_it_is() -> None:
    model = decoder("Llama").train()
    model.model.layers[1].self_attn.attention_dropout = 0.1
    report = nki_lib.hf.use_kernels(model, ["attention"])
    assert "dropout of 0.1" in str(report) and report.swapped == []


def test_an_encoder_with_layer_norms() -> None:
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = encoder("ViT", **sizes, image_size=16, patch_size=4)
    pixels = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = model(pixels).last_hidden_state
        with nki_lib.hf.use_kernels(model) as report:
            found = model(pixels).last_hidden_state
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    assert {"layer_norm", "matmul"} <= {swap.kernel for swap in report.swapped}
    assert any(left.found == "Conv2d" for left in report.left)


def test_the_report_can_be_read() -> None:
    text = str(nki_lib.hf.use_kernels(decoder("Qwen3Moe")))
    assert "Qwen3MoeForCausalLM: " in text and "modules run kernels of nki_lib" in text
    assert "2 x Qwen3MoeExperts" in text and "model.layers.0.mlp.experts" in text


def test_a_model_can_be_copied_after_the_swap() -> None:
    import copy

    model, ids = decoder("Llama"), tokens(1, 5)
    nki_lib.hf.use_kernels(model)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
        assert not twin(ids).logits.any() and model(ids).logits.any()


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (nn.SiLU(), "silu"),
        (nn.GELU(), "gelu"),
        (nn.GELU("tanh"), "gelu_tanh"),
        (torch.relu, "relu"),
        (torch.tanh, None),
    ],
)
def test_activations_are_known_by_their_values(function: Any, name: str | None) -> None:
    assert activation_of(function) == name


@pytest.mark.parametrize("config", ["Float8WeightOnlyConfig", "Float8DynamicActivationFloat8WeightConfig"])
def test_a_model_with_weights_of_torchao(config: str) -> None:
    """The same logits as torchao's, but for the rounding of bfloat16."""
    quantization = pytest.importorskip("torchao.quantization")
    model, ids = decoder("Llama").bfloat16(), tokens(2, 9)
    try:
        quantization.quantize_(model, getattr(quantization, config)())
    except AssertionError as error:  # its other formats ask for a GPU
        pytest.skip(str(error))
    with torch.no_grad():
        expected = model(ids).logits
        with nki_lib.hf.use_kernels(model) as report:
            found = model(ids).logits
    assert any("torchao" in swap.kernel for swap in report.swapped)
    assert (found - expected).abs().max() <= 2.0**-5 * expected.abs().max()
