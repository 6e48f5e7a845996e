"""Checks that the attention operators share: queries, keys and values, and tables of rotations."""

from __future__ import annotations

import torch
from torch import Tensor

from nki import errors
from nki_lib.common.arguments import Checks

AXES = "batch, heads, length, head dimension"


class AttentionChecks(Checks):
    """The checks of one operator on queries, keys and values."""

    def attention(self, q: Tensor, k: Tensor, v: Tensor, most: int) -> None:
        """q [B, Hq, Sq, D], k and v [B, Hkv, Sk, D], Hq a multiple of Hkv, D at most `most`."""
        self.tensor("q", q, AXES)
        for name, tensor in (("k", k), ("v", v)):
            self.tensor(name, tensor, AXES, like=q)
            if tensor.shape[0] != q.shape[0] or tensor.shape[3] != q.shape[3]:
                allowed = f"batch {q.shape[0]} and head dimension {q.shape[3]}, as q"
                raise self.error(errors.ShapeError, name, tensor, allowed)
        self.shape("v", v, tuple(k.shape), "as k")
        if k.shape[1] != q.shape[1] and (k.shape[1] == 0 or q.shape[1] % k.shape[1] != 0):
            allowed = f"a number of heads that divides the {q.shape[1]} of q"
            remedy = "pass k and v with one head per group of query heads"
            raise self.error(errors.ShapeError, "k", k, allowed, remedy)
        if not 1 <= q.shape[3] <= most:
            remedy = "split the heads: the head dimension lies on the partitions" if q.shape[3] else None
            raise self.error(errors.ShapeError, "q", q, f"a head dimension from 1 to {most}", remedy)

    def numbers(self, scale: float | None, window: int | None = None, softcap: float | None = None) -> None:
        """What scales, windows and caps may be."""
        self.number("scale", scale)
        self.number("softcap", softcap, positive=True)
        if window is None or (isinstance(window, torch.SymInt) and window >= 1):
            return
        if not isinstance(window, int) or isinstance(window, bool) or not 1 <= window < 2**63:
            allowed = "an integer of 1 or more"
            raise self.error(errors.ArgumentError, "window", repr(window), allowed, "pass None for all keys")

    def rotation(self, cos: Tensor, sin: Tensor, batch: int, length: int, depth: int) -> None:
        """Tables [S, W] or [B, S, W] for heads of `depth`, with W = depth or half of it."""
        for name, table in (("cos", cos), ("sin", sin)):
            self.tensor(name, table, "batch, length, width" if table.dim() == 3 else "length, width")
            widths = (depth, depth // 2)
            if table.shape[-1] not in widths or table.shape[-2] != length:
                allowed = f"[{length}, {depth}] or [{length}, {depth // 2}], with or without batch {batch}"
                remedy = "pass the rows of these positions, of full or of half width"
                raise self.error(errors.ShapeError, name, table, allowed, remedy)
            if table.dim() == 3 and table.shape[0] != batch:
                remedy = f"leave the batch out if all share it, or expand it: {name}.expand({batch}, -1, -1)"
                raise self.error(errors.ShapeError, name, table, f"batch {batch}", remedy)
        if depth % 2:
            allowed = "an even head dimension, as the rotation turns pairs"
            raise self.error(errors.ShapeError, "cos", f"head dimension {depth}", allowed, "pad the heads")
        if sin.dtype != cos.dtype:
            raise self.error(
                errors.DtypeError, "sin", sin, f"{cos.dtype}, as cos", "cast it: sin.to(cos.dtype)"
            )
        if sin.shape != cos.shape:
            raise self.error(errors.ShapeError, "sin", sin, f"shape {list(cos.shape)}, as cos")
