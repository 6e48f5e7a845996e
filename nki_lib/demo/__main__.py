"""The demo from end to end; what it prints explains what it does."""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Callable
from pathlib import Path

from nki.errors import MissingExtraError

try:
    import torch
except ImportError:
    sys.exit(
        str(MissingExtraError("the demo needs PyTorch", remedy="pip install 'open-nki[torch]', or make demo"))
    )

import nki_lib
from nki_lib.demo.chip import profile_lines
from nki_lib.demo.model import Attention, ByteModel, Shape, loss_of, train

TEXT = Path(__file__).parent / "text.txt"
PAGE = Path("build") / "nki-demo-profile.html"


def pytorch_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """PyTorch's own kernel."""
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def nki_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Ours, as an operator of PyTorch."""
    return nki_lib.flash_attention(q, k, v, causal=True)


def main(argv: list[str] | None = None) -> int:
    """Run the demo."""
    parser = argparse.ArgumentParser(prog="python -m nki_lib.demo", description=__doc__)
    parser.add_argument("--steps", type=int, default=60, help="training steps before the comparison (60)")
    parser.add_argument("--page", type=Path, default=PAGE, help=f"where to write the profile ({PAGE})")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)  # sums in one order: the same figures in every run
    began = time.perf_counter()
    shape = Shape()
    data = TEXT.read_bytes()
    text = torch.tensor(list(data))
    print("FlashAttention written in NKI, run by an interpreted NeuronCore inside a PyTorch model\n")
    say("text", f"the Gettysburg Address and six sonnets of Shakespeare, {len(data)} bytes")
    say(
        "model",
        f"{shape.layers} layers, width {shape.width}, {shape.heads} query heads on {shape.key_heads} key heads of "
        f"{shape.depth}, context {shape.context} bytes",
    )
    model = trained_model(shape, text, options.steps)
    compare(model, shape, text)
    print("\n".join(profile_lines(shape, options.page)))
    print(f"All of it took {time.perf_counter() - began:.0f} s.")
    return 0


def say(label: str, message: str, end: str = "\n") -> None:
    """One line of the account."""
    print(f"{label:10}{message}", end=end, flush=True)


def trained_model(shape: Shape, text: torch.Tensor, steps: int) -> ByteModel:
    """The model from a fixed seed, trained briefly with PyTorch's attention."""
    torch.manual_seed(0)
    model = ByteModel(shape, pytorch_attention)
    began, losses = time.perf_counter(), []

    def report(step: int, loss: float) -> None:
        losses.append(loss)
        if sys.stdout.isatty():
            say("\rtraining", f"  step {step} of {steps}, loss {loss:.2f}", end="\x1b[K")

    train(model, text, shape.context, steps, report)
    if losses:
        start = "\r\x1b[K" if sys.stdout.isatty() else ""
        spent = time.perf_counter() - began
        fell = f"loss {losses[0]:.2f} -> {losses[-1]:.2f} nats a byte"
        say(f"{start}training", f"{steps} steps with PyTorch's attention, {fell}, {spent:.0f} s")
    return model.eval().requires_grad_(False)


def compare(model: ByteModel, shape: Shape, text: torch.Tensor) -> None:
    """The same weights with either attention, on the whole text, in two types."""
    rows = (len(text) - 1) // shape.context
    inputs = text[: rows * shape.context].view(rows, -1)
    following = text[1 : rows * shape.context + 1].view(rows, -1)
    say("swap", 'torch.ops.nki_lib.flash_attention, torch.compile(fullgraph=True, backend="aot_eager"),')
    launches = rows * shape.key_heads * shape.layers
    say(
        "",
        f"{rows} rows x {shape.key_heads} key heads x {shape.layers} layers = {launches} launches of one program\n",
    )
    print(f"{'':10}{'largest':>12}{'largest':>12}{'loss with':>12}{'loss with':>12}{'first':>10}{'next':>10}")
    print(f"{'':10}{'logit':>12}{'difference':>12}{'PyTorch':>12}{'NKI':>12}{'run':>10}{'run':>10}")
    for dtype in (torch.float32, torch.bfloat16):
        ours, theirs = (with_attention(model, a).to(dtype) for a in (nki_attention, pytorch_attention))
        compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
        with torch.no_grad():
            expected = theirs(inputs)
            logits, first = timed(compiled, inputs)
            _, again = timed(compiled, inputs)
        difference = (logits.float() - expected.float()).abs().max().item()
        print(
            f"{str(dtype).removeprefix('torch.'):10}{expected.abs().max().item():12.2f}{difference:12.1e}"
            f"{loss_of(expected, following):12.5f}{loss_of(logits, following):12.5f}{first:8.1f} s{again:8.2f} s"
        )


def with_attention(model: ByteModel, attention: Attention) -> ByteModel:
    """A copy of the model that attends with another function."""
    other = copy.deepcopy(model)
    for block in other.blocks:
        block.attention = attention
    return other


def timed(
    function: Callable[[torch.Tensor], torch.Tensor], argument: torch.Tensor
) -> tuple[torch.Tensor, float]:
    """A result and the seconds it took."""
    began = time.perf_counter()
    result = function(argument)
    return result, time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
