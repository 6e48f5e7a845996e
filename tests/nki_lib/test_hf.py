"""`attn_implementation="nki"` in models of Transformers, against the same models with PyTorch's attention."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5")

import nki_lib.hf  # noqa: E402
from nki_lib.attention.flash_attention.kernel import flash_attention as attention_kernel  # noqa: E402
from nki_lib.attention.flash_decode.kernel import flash_decode as decode_kernel  # noqa: E402
from nki_lib.hf import attention as front  # noqa: E402
from tests.nki_lib.hf_models import (  # noqa: E402
    DECODERS,
    LOCAL,
    SHAPE,
    both,
    decoder,
    encoder,
    left_padded,
    spread_out,
    tokens,
)

TEXT = Path(nki_lib.__file__).parent / "demo/text.txt"


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    nki_lib.hf.register()
    yield
    nki_lib.hf.unregister()


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the programs that are staged from here on, with nothing in the kernels' caches."""
    staged: list[str] = []
    module = import_module("nki.jit")  # `nki.jit` itself is the decorator
    real = module.Compiled
    for kernel in (attention_kernel, decode_kernel):
        kernel._cache.clear()

    def count(program: Any, *rest: Any, **more: Any) -> Any:
        staged.append(program.name)
        return real(program, *rest, **more)

    monkeypatch.setattr(module, "Compiled", count)
    return staged


def unit(values: Any) -> float:
    """The spacing of bfloat16 numbers at the largest value."""
    return float(2.0 ** (values.abs().max().float().log2().floor() - 7))


# ---- the same values ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DECODERS)
def test_logits(name: str) -> None:
    model, ids = decoder(name), tokens(2, 23)
    mask = left_padded(ids, 6)
    eager, ours = both(model, lambda m: m(ids, attention_mask=mask).logits[mask.bool()])
    torch.testing.assert_close(ours, eager, atol=1e-5, rtol=0)
    eager, ours = both(model, lambda m: m(ids).logits)
    torch.testing.assert_close(ours, eager, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", DECODERS)
def test_logits_in_bfloat16(name: str) -> None:
    """At the weights that Transformers begins with, PyTorch's own rounding errors are a unit and a half."""
    model, ids = decoder(name, spread=0.02), tokens(2, 23)
    with torch.no_grad():
        truth = model(ids).logits
    eager, ours = both(model.bfloat16(), lambda m: m(ids).logits.float())
    assert (ours - eager).abs().max() <= 2 * unit(eager)
    assert (ours - truth).abs().max() <= (eager - truth).abs().max() + unit(eager)


@pytest.mark.parametrize("name", DECODERS)
def test_generation(name: str, programs: list[str]) -> None:
    """The window is shorter than the prompt, the prompt of one sequence padded; the logits of every step agree."""
    model, ids = decoder(name), tokens(2, 19)
    options = {"attention_mask": left_padded(ids, 5), "max_new_tokens": 32, "do_sample": False}
    options |= {"output_logits": True, "return_dict_in_generate": True}
    eager, ours = both(model, lambda m: m.generate(ids, **options))
    assert ours.sequences.shape == (2, 51) and torch.equal(ours.sequences, eager.sequences)
    torch.testing.assert_close(torch.stack(ours.logits), torch.stack(eager.logits), atol=1e-5, rtol=0)
    assert len(programs) <= 3, programs


@pytest.mark.parametrize(
    ("name", "option"),
    [("Llama", "key_padding_mask"), ("Gemma2", "window"), ("Gemma2", "softcap"), ("GptOss", "sinks")],
)
def test_models_need_every_option(name: str, option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one of them the logits are wrong: the tests above would notice."""
    real = front.flash_attention
    monkeypatch.setattr(front, "flash_attention", lambda *a, **options: real(*a, **{**options, option: None}))
    model, ids = decoder(name), tokens(2, 23)
    mask = left_padded(ids, 6)
    eager, ours = both(model, lambda m: m(ids, attention_mask=mask).logits[mask.bool()])
    assert (ours - eager).abs().max() > 1e-3


def test_generation_with_a_static_cache(programs: list[str]) -> None:
    model, ids = decoder("Gemma2"), tokens(2, 11)
    options = {"cache_implementation": "static", "disable_compile": True, "do_sample": False}
    eager, ours = both(
        model, lambda m: m.generate(ids, attention_mask=left_padded(ids, 3), max_new_tokens=6, **options)
    )
    assert torch.equal(ours, eager)
    assert len(programs) <= 4, programs


def test_a_prompt_in_parts() -> None:
    """Later parts are longer and shorter than what `flash_decode` takes at once."""
    model = decoder("Gemma2")
    key = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"

    def run(model: Any) -> Any:
        outputs, cache = [], {}
        for part in tokens(2, 23).split([8, 10, 4, 1], dim=1):
            result = model(part, use_cache=True, **cache)
            cache = {key: result[key]}
            outputs.append(result.logits)
        return torch.cat(outputs, 1)

    eager, ours = both(model, run)
    torch.testing.assert_close(ours, eager, atol=1e-5, rtol=0)


def test_packed_sequences() -> None:
    """Two sequences in one row, told by their positions: a mask without a name."""
    positions = torch.cat([torch.arange(10), torch.arange(13)])[None].expand(2, -1)
    eager, ours = both(decoder("Llama"), lambda m: m(tokens(2, 23), position_ids=positions).logits)
    torch.testing.assert_close(ours, eager, atol=1e-5, rtol=0)


def last_states(model: Any, ids: Any, **options: Any) -> Any:
    return model(ids, **options).last_hidden_state


def test_encoders() -> None:
    ids = tokens(2, 23)
    mask = left_padded(ids, 6).flip(1)
    bert = encoder("Bert", **SHAPE)
    for padding in (None, mask):
        eager, ours = both(bert, partial(last_states, ids=ids, attention_mask=padding))
        eager, ours = eager[mask.bool()], ours[mask.bool()]
        torch.testing.assert_close(ours, eager, atol=1e-5, rtol=0)
    sizes = {k: v for k, v in SHAPE.items() if k.startswith(("hidden", "num", "inter"))}
    vit = encoder("ViT", **sizes, image_size=16, patch_size=4)
    pixels = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    eager, ours = both(vit, lambda m: m(pixels).last_hidden_state)
    torch.testing.assert_close(ours, eager, atol=1e-5, rtol=0)


def test_encoder_and_decoder_with_position_bias(programs: list[str]) -> None:
    """T5: a bias in every layer, attention across, keys of another length than queries."""
    sizes = {"vocab_size": 256, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4}
    config = transformers.T5Config(**sizes, decoder_start_token_id=0, eos_token_id=None)
    model, ids = spread_out(transformers.T5ForConditionalGeneration(config), 0.08), tokens(2, 12)
    given = {"attention_mask": left_padded(ids, 4).flip(1)}
    eager, ours = both(model, lambda m: m.generate(ids, **given, max_new_tokens=6, do_sample=False))
    assert torch.equal(ours, eager)
    assert len(programs) <= 3, programs
    eager, ours = both(model, lambda m: m(input_ids=ids, decoder_input_ids=ids[:, :5], **given).logits)
    torch.testing.assert_close(ours, eager, atol=1e-5, rtol=0)


# ---- training and compiling -----------------------------------------------------------------------------------------


def losses(implementation: str) -> list[float]:
    """Twenty steps of training on the bytes of a text."""
    model = decoder("Llama", spread=0.05).train()
    model.set_attn_implementation(implementation)
    text = torch.tensor(list(TEXT.read_bytes()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    found = []
    for step in range(20):
        batch = text[step * 96 : (step + 1) * 96].view(2, 48)
        loss = model(batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.slow
def test_training() -> None:
    expected, found = losses("sdpa"), losses("nki")
    assert found == pytest.approx(expected, abs=1e-3)
    assert found[-1] < 0.8 * found[0]


@pytest.mark.parametrize("name", ["Gemma2", "GptOss"])
def test_gradients(name: str) -> None:
    """Of every parameter, sinks included, with window and padding.

    The first token after the padding is no label: a padding token, which sees no key, would predict it, from zeros here
    and from the mean of all values in "eager".
    """
    model, ids = decoder(name), tokens(2, 19)
    mask, labels = left_padded(ids, 5), ids.masked_fill(left_padded(ids, 6) == 0, -100)
    gradients = []
    for implementation in ("eager", "nki"):
        model.set_attn_implementation(implementation)
        model.zero_grad()
        model(ids, attention_mask=mask, labels=labels).loss.backward()
        gradients.append({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
    assert gradients[1].keys() == gradients[0].keys()
    for parameter, expected in gradients[0].items():
        found = gradients[1][parameter]
        torch.testing.assert_close(found, expected, atol=2e-5 * float(expected.abs().max()), rtol=0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # PyTorch's and Transformers' own, while they trace
def test_compiled_as_one_graph() -> None:
    model = transformers.MistralForCausalLM(transformers.MistralConfig(**{**LOCAL, "num_hidden_layers": 1}))
    ids = tokens(2, 12)
    mask = left_padded(ids, 3)
    run = {"attention_mask": mask, "use_cache": False}
    eager, _ = both(spread_out(model, 0.08), lambda m: m(ids, **run).logits[mask.bool()])
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        ours = compiled(ids, **run).logits[mask.bool()]
    torch._dynamo.reset()
    torch.testing.assert_close(ours, eager, atol=1e-5, rtol=0)
