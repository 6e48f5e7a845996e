"""Models whose modules run our kernels: the same logits, tokens and losses as before."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import nki_lib  # noqa: E402
from tests.nki_lib.hf_models import BLOCKS, decoder, left_padded, tokens  # noqa: E402
from tests.nki_lib.test_hf import TEXT  # noqa: E402

EXPECTED = {
    "Llama": {"rms_norm", "mlp"},
    "GptOss": {"rms_norm", "moe_prefill, moe_decode", "matmul, router_topk"},
    "Mixtral": {"rms_norm", "moe_prefill, moe_decode", "matmul, router_topk"},
    "Qwen3Moe": {"rms_norm", "moe_prefill, moe_decode", "matmul, router_topk"},
    "DeepseekV3": {"rms_norm", "mlp", "moe_prefill, moe_decode", "matmul, router_topk"},
    "Mamba": {"rms_norm", "depthwise_conv1d, selective_scan"},
}
EVERYWHERE = {"matmul", "embedding", "cross_entropy"}


def before_and_after(model: Any, run: Any) -> tuple[Any, Any]:
    """What `run(model)` gives with the modules of Transformers, and with ours."""
    with torch.no_grad():
        expected = run(model)
        with nki_lib.hf.use_kernels(model):
            found = run(model)
    return expected, found


@pytest.mark.parametrize("name", BLOCKS)
def test_what_is_swapped_and_taken_back(name: str) -> None:
    model = decoder(name)
    attention, loss = model.config._attn_implementation, model.loss_function
    state = {key: value.data_ptr() for key, value in model.state_dict().items()}
    report = nki_lib.hf.use_kernels(model)
    kernels = {swap.kernel for swap in report.swapped}
    expected = EXPECTED[name] | EVERYWHERE | ({"flash_attention, flash_decode"} if name != "Mamba" else set())
    assert kernels == expected, str(report)
    assert report.left == [], str(report)
    assert {key: value.data_ptr() for key, value in model.state_dict().items()} == state
    report.undo()
    assert not any("forward" in module.__dict__ for module in model.modules())
    assert model.config._attn_implementation == attention and model.loss_function is loss
    report.undo()


@pytest.mark.parametrize("name", BLOCKS)
def test_logits(name: str) -> None:
    ids = tokens(2, 21)
    expected, found = before_and_after(decoder(name), lambda m: m(ids).logits)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", BLOCKS)
def test_logits_in_bfloat16(name: str) -> None:
    """Within 2 units of the largest logit, or as far from float32 as Transformers' own bfloat16 is."""
    ids, model = tokens(2, 21), decoder(name, spread=0.02)
    with torch.no_grad():
        exact = model(ids).logits
    expected, found = before_and_after(model.bfloat16(), lambda m: m(ids).logits.float())
    unit = 2.0**-8 * float(exact.abs().max())
    assert (found - expected).abs().max() <= 2 * unit


@pytest.mark.slow
@pytest.mark.parametrize("name", BLOCKS)
def test_greedy_generation(name: str) -> None:
    ids = tokens(2, 7)
    given = {"attention_mask": left_padded(ids, 2)} if name != "Mamba" else {}
    expected, found = before_and_after(
        decoder(name), lambda m: m.generate(ids, **given, max_new_tokens=32, do_sample=False)
    )
    assert torch.equal(found, expected)


@pytest.mark.parametrize("name", BLOCKS)
def test_gradients(name: str) -> None:
    """Of every parameter, from the loss."""
    model, ids = decoder(name), tokens(2, 19)
    gradients = []
    for swapped in (False, True):
        report = nki_lib.hf.use_kernels(model) if swapped else None
        model.zero_grad()
        model(ids, labels=ids).loss.backward()
        gradients.append({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
        if report is not None:
            report.undo()
    assert gradients[0].keys() == gradients[1].keys()
    for parameter, expected in gradients[0].items():
        torch.testing.assert_close(
            gradients[1][parameter], expected, atol=3e-5 * float(expected.abs().max()), rtol=0, msg=parameter
        )


def losses(name: str, swapped: bool) -> list[float]:
    """Fifty steps of training on the bytes of a text.

    The rate is one at which PyTorch's own float32 and float64 stay within 5e-5 of each other: at 1e-3 Mamba's losses
    are 4e-3 apart after fifty steps, whoever computes them.
    """
    model = decoder(name, spread=0.05).train()
    if swapped:
        nki_lib.hf.use_kernels(model)
    text = torch.tensor(list(TEXT.read_bytes()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    found = []
    for step in range(50):
        start = step * 64 % (len(text) - 64)
        batch = text[start : start + 64].view(2, 32)
        loss = model(batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", BLOCKS)
def test_training(name: str) -> None:
    expected, found = losses(name, False), losses(name, True)
    assert found == pytest.approx(expected, abs=1e-3)
    assert sum(found[-5:]) < sum(found[:5])


def test_experts_follow_their_parameters() -> None:
    """The second copy of their matrices is made again when an optimizer or a checkpoint changes the first."""
    model, ids = decoder("Mixtral"), tokens(1, 5)
    report = nki_lib.hf.use_kernels(model)
    with torch.no_grad():
        first = model(ids).logits
        for name, parameter in model.named_parameters():
            if "down_proj" in name:
                parameter.mul_(-1.0)
        second = model(ids).logits
        report.undo()
        torch.testing.assert_close(second, model(ids).logits, atol=1e-5, rtol=0)
    assert not torch.allclose(first, second)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # PyTorch's and Transformers' own, while they trace
def test_compiled_as_one_graph() -> None:
    model, ids = decoder("Llama"), tokens(2, 12)
    with torch.no_grad(), nki_lib.hf.use_kernels(model):
        expected = model(ids, use_cache=False).logits
        torch._dynamo.reset()
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        found = compiled(ids, use_cache=False).logits
        torch._dynamo.reset()
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
