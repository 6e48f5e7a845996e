"""Checks of the selective scan's arguments."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from nki import errors
from nki_lib.common.arguments import DTYPES, Checks
from nki_lib.sequence.selective_scan.channels import MOST_STATES, parts_of


class ScanChecks(Checks):
    """All of them begin with u, whose dtype, device and sizes the others follow."""

    def arguments(
        self,
        u: Tensor,
        delta: Tensor,
        A: Tensor,
        B: Tensor,
        C: Tensor,
        D: Tensor | None,
        z: Tensor | None,
        delta_bias: Tensor | None,
    ) -> None:
        """Raise for what cannot be computed, naming the argument."""
        self.tensor("u", u, "batch, channels, length")
        self.rates(A, u)
        batch, _, length = u.shape
        alike = {"delta": delta, "z": z}
        for name, tensor in alike.items():
            if tensor is not None:
                self.tensor(name, tensor, "batch, channels, length", like=u)
                self.shape(name, tensor, tuple(u.shape), "that of u")
        for name, tensor in (("B", B), ("C", C)):
            self.tensor(name, tensor, "batch, states, length", like=u)
            self.shape(name, tensor, (batch, A.shape[1], length), "batch and length of u, states of A")
        for name, vector in (("D", D), ("delta_bias", delta_bias)):
            if vector is not None:
                self.vector(name, vector, u)

    def gradient(self, grad: Tensor, u: Tensor, *rest: Any) -> None:
        """That grad can be the gradient of y, and the last argument the states after each part."""
        *others, ends = rest
        self.arguments(u, *others)
        self.tensor("grad", grad, "batch, channels, length", like=u)
        self.shape("grad", grad, tuple(u.shape), "that of u")
        A = others[1]
        expected = (u.shape[0], parts_of(u.shape[2], A.shape[1]), *A.shape)
        self.shape("ends", ends, expected, "the states after each part")

    def rates(self, A: Tensor, u: Tensor) -> None:
        """A: float32, a row for each channel."""
        self.place("A", A, u)
        if A.dtype != torch.float32:
            raise self.error(errors.DtypeError, "A", A, "float32", "cast it: A.float()")
        self.tensor("A", A, "channels, states")
        if not 1 <= A.shape[1] <= MOST_STATES:
            raise self.error(errors.ShapeError, "A", A, f"1 to {MOST_STATES} states for each channel")
        self.shape("A", A, (u.shape[1], A.shape[1]), "a row for each channel of u")

    def vector(self, name: str, vector: Tensor, u: Tensor) -> None:
        """A number for each channel, of the dtype of u or float32."""
        self.place(name, vector, u)
        if vector.dtype not in DTYPES or vector.dtype not in (u.dtype, torch.float32):
            remedy = "cast it to that of u or to float32"
            raise self.error(errors.DtypeError, name, vector, f"{u.dtype}, as u, or float32", remedy)
        self.shape(name, vector, (u.shape[1],), "a number for each channel of u")

    def place(self, name: str, tensor: Tensor, u: Tensor) -> None:
        """Its device."""
        if tensor.device != u.device:
            remedy = f"move it: {name}.to({str(u.device)!r})"
            raise self.error(errors.ArgumentError, name, tensor, f"{u.device}, as u", remedy)
