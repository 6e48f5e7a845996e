"""The arguments that the operators of mixture-of-experts layers share: what they are, and what is refused.

Letters:  T  tokens   H  width of the model   E  experts   I  width of an expert   k  experts a token chooses
          Is width of the shared expert

Weights are plain (the dtype of x), fp8 (a float32 scale for each output channel) or microscaled (MX: a power of two for
each 32 elements along the contracted axis; elements fp8, or fp4, two in a byte).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nki import errors
from nki_lib.common.arguments import FLOAT8, Checks
from nki_lib.common.kinds import check_whole
from nki_lib.moe.activations import ACTIVATIONS, CLAMPED
from nki_lib.quantization.formats import BLOCK

FP4_TYPES = (torch.uint8, torch.float4_e2m1fn_x2)
MX_SCALE_TYPES = (torch.uint8, torch.float8_e8m0fnu)
INDEX_TYPES = (torch.int32, torch.int64)
AS_TRANSPOSED = "gate_up is [experts, width in, 2, width out], down [experts, width in, width out]"


@dataclass(frozen=True)
class Experts:
    """All that belongs to the experts: gate_up [E, H, 2, I], down [E, I, H], and what may come with them.

    gate_up_bias [E, 2, I], down_bias [E, H]; scales: fp8 [E, 2, I] and [E, H], MX [E, H/32, 2, I] and [E, I/32, H].
    shared_gate_up [H, 2, Is], shared_down [Is, H] and shared_gate [T]: an expert for all tokens.
    """

    gate_up: Tensor
    down: Tensor
    gate_up_bias: Tensor | None = None
    down_bias: Tensor | None = None
    gate_up_scale: Tensor | None = None
    down_scale: Tensor | None = None
    shared_gate_up: Tensor | None = None
    shared_down: Tensor | None = None
    shared_gate: Tensor | None = None

    @property
    def format(self) -> str:
        """What the weights are made of: plain, fp8, mxfp8 or mxfp4."""
        if self.gate_up.dtype in FP4_TYPES:
            return "mxfp4"
        if self.gate_up.dtype not in FLOAT8:
            return "plain"
        scale = self.gate_up_scale
        return "mxfp8" if scale is not None and scale.dtype in MX_SCALE_TYPES else "fp8"


def bytes_of(tensor: Tensor) -> Tensor:
    """The bits of types that only say what bytes mean."""
    only = (torch.float4_e2m1fn_x2, torch.float8_e8m0fnu)
    return tensor.view(torch.uint8) if tensor.dtype in only else tensor


class ExpertChecks(Checks):
    """The checks of an operator on experts. All but `inside` ask for shapes and dtypes only: fake tensors pass too."""

    def model(self, x: Tensor, weights: Tensor, indices: Tensor, experts: Experts) -> None:
        """Tokens, what they chose, and the experts."""
        self.tensor("x", x, "tokens, width of the model")
        self.routing(x, weights, indices)
        self.expert_weights(x, experts)
        self.biases(x, experts)
        self.scales(experts)
        self.shared(x, experts)

    def routing(self, x: Tensor, weights: Tensor, indices: Tensor) -> None:
        """weights, indices [T, k]."""
        self.tensor("weights", weights, "tokens, experts of each")
        if weights.shape[0] != x.shape[0]:
            raise self.error(errors.ShapeError, "weights", weights, f"{x.shape[0]} rows, one for each of x")
        if indices.dtype not in INDEX_TYPES:
            raise self.error(
                errors.DtypeError, "indices", indices, "int32 or int64", "cast it: indices.int()"
            )
        self.shape("indices", indices, tuple(weights.shape), "one for each of weights")
        for name, tensor in (("weights", weights), ("indices", indices)):
            self.same_device(name, tensor, x)

    def same_device(self, name: str, tensor: Tensor, x: Tensor) -> None:
        """Where x is."""
        if tensor.device != x.device:
            remedy = f"move it: {name}.to({str(x.device)!r})"
            raise self.error(errors.ArgumentError, name, tensor, f"{x.device}, as x", remedy)

    def expert_weights(self, x: Tensor, experts: Experts) -> None:
        """gate_up and down, of a dtype that goes with x, and of shapes that go with each other."""
        gate_up, down = experts.gate_up, experts.down
        if gate_up.dtype not in (x.dtype, *FLOAT8, *FP4_TYPES):
            allowed = f"{x.dtype}, as x, or float8_e4m3fn, float8_e5m2, or fp4 in pairs (uint8)"
            raise self.error(errors.DtypeError, "gate_up", gate_up, allowed)
        if down.dtype != gate_up.dtype:
            raise self.error(errors.DtypeError, "down", down, f"{gate_up.dtype}, as gate_up")
        for name, tensor in (("gate_up", gate_up), ("down", down)):
            self.same_device(name, tensor, x)
        packed = 2 if experts.format == "mxfp4" else 1
        width = x.shape[1]
        if gate_up.dim() != 4 or gate_up.shape[2] != 2 or gate_up.shape[1] * packed != width:
            allowed = f"[experts, {width // packed}, 2, width of an expert], as x has width {width}"
            raise self.error(errors.ShapeError, "gate_up", gate_up, allowed, AS_TRANSPOSED)
        if gate_up.shape[3] % packed:
            raise self.error(errors.ShapeError, "gate_up", gate_up, "an even width of an expert")
        expected = (gate_up.shape[0], gate_up.shape[3] // packed, width)
        self.shape("down", down, expected, "as gate_up and x have it", AS_TRANSPOSED)

    def biases(self, x: Tensor, experts: Experts) -> None:
        """gate_up_bias [E, 2, I], down_bias [E, H]."""
        count, width = experts.gate_up.shape[0], experts.gate_up.shape[3]
        for name, bias, shape in (
            ("gate_up_bias", experts.gate_up_bias, (count, 2, width)),
            ("down_bias", experts.down_bias, (count, x.shape[1])),
        ):
            if bias is None:
                continue
            if bias.dtype not in (x.dtype, torch.float32):
                raise self.error(errors.DtypeError, name, bias, f"{x.dtype}, as x, or float32", "cast it")
            self.shape(name, bias, shape, "one for each output channel of an expert")
            self.same_device(name, bias, x)

    def scales(self, experts: Experts) -> None:
        """None with plain weights; else float32 for each output channel, or MX scales for 32 elements each."""
        kind, found = experts.format, (experts.gate_up_scale, experts.down_scale)
        count, width_out, width = experts.gate_up.shape[0], experts.gate_up.shape[3], experts.down.shape[2]
        shapes: tuple[tuple[int, ...], ...] = ((count, 2, width_out), (count, width))
        dtypes, why = (torch.float32,), "one for each output channel of an expert"
        if kind.startswith("mx"):
            for name, size in (("gate_up", width), ("down", width_out)):
                if size % BLOCK:
                    allowed = f"a contracted axis of whole blocks of {BLOCK}, not {size}"
                    raise self.error(errors.ShapeError, name, getattr(experts, name), allowed)
            shapes = ((count, width // BLOCK, 2, width_out), (count, width_out // BLOCK, width))
            dtypes, why = MX_SCALE_TYPES, f"one for {BLOCK} elements of the contracted axis"
        for name, scale, shape in zip(("gate_up_scale", "down_scale"), found, shapes, strict=True):
            if (scale is None) != (kind == "plain"):
                allowed = "None, as the weights have the dtype of x" if kind == "plain" else f"scales, {why}"
                raise self.error(errors.ArgumentError, name, scale, allowed)
            if scale is None:
                continue
            if scale.dtype not in dtypes:
                raise self.error(errors.DtypeError, name, scale, " or ".join(map(str, dtypes)))
            self.shape(name, scale, shape, why)
            self.same_device(name, scale, experts.gate_up)

    def shared(self, x: Tensor, experts: Experts) -> None:
        """shared_gate_up [H, 2, Is] and shared_down [Is, H] of the dtype of x, or neither; shared_gate [T]."""
        gate_up, down, gate = experts.shared_gate_up, experts.shared_down, experts.shared_gate
        if gate_up is None or down is None:
            for name, tensor in (
                ("shared_gate_up", gate_up),
                ("shared_down", down),
                ("shared_gate", gate),
            ):
                if tensor is not None:
                    allowed = "shared_gate_up and shared_down both, or nothing of a shared expert"
                    raise self.error(errors.ArgumentError, name, tensor, allowed)
            return
        self.tensor("shared_gate_up", gate_up, "width of the model, 2, width of the shared expert", like=x)
        self.tensor("shared_down", down, "width of the shared expert, width of the model", like=x)
        width = gate_up.shape[2]
        self.shape("shared_gate_up", gate_up, (x.shape[1], 2, width), "as x has it")
        self.shape("shared_down", down, (width, x.shape[1]), "as shared_gate_up and x have it")
        if gate is not None:
            self.tensor("shared_gate", gate, "tokens")
            self.same_device("shared_gate", gate, x)
            self.shape("shared_gate", gate, (x.shape[0],), "one for each row of x")

    def activation(self, name: str, alpha: float, limit: float) -> None:
        """One that is known, with numbers it can use."""
        self.choice("activation", name, ACTIVATIONS)
        self.number("alpha", alpha, optional=False)
        self.number("limit", limit, positive=name == CLAMPED, optional=False)

    def slice_of_experts(self, first: int | None) -> None:
        """Where the experts begin among all; None: these are all."""
        check_whole(self, "first_expert", first, optional=True)
        if first is not None and first < 0:
            raise self.error(errors.ArgumentError, "first_expert", first, "0 or more")

    def inside(self, indices: Tensor, experts: int) -> None:
        """Real indices name experts that exist."""
        if indices.numel() == 0:
            return
        wrong = (indices < 0) | (indices >= experts)
        if wrong.any():
            place = wrong.nonzero()[0].tolist()
            found = f"expert {int(indices[tuple(place)])} at {place}"
            remedy = "pass first_expert if gate_up and down are a slice of the experts"
            raise self.error(errors.BoundsError, "indices", found, f"0 to {experts - 1}", remedy)
