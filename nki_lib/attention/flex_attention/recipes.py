"""The usual recipes. Masks: causal, sliding_window, document_mask, prefix_lm. Scores: alibi, softcap.

Masks combine with `&`, scores with `>>` (the left one first). Each is a function that checks its arguments and makes a
frozen dataclass; `recipe.py` says what that is and how to write one. Indices count from the first query and the first
key, as in PyTorch's flex_attention.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki import errors
from nki_lib.attention.flex_attention.recipe import EMPTY, FULL, PARTIAL, MaskRecipe, ScoreRecipe, is_tensor
from nki_lib.common.tiles import fetch

__all__ = ["alibi", "causal", "document_mask", "prefix_lm", "sliding_window", "softcap"]

MINUS_INFINITY = float("-inf")


def causal(offset: int = 0) -> MaskRecipe:
    """Query i sees the keys j <= i + offset. With offset Sk - Sq the last query sees all keys."""
    return Causal(_integer("causal", "offset", offset, None))


def sliding_window(width: int) -> MaskRecipe:
    """Query i sees the keys j > i - width: itself and the width - 1 before it, and all after it unless `& causal()`."""
    return SlidingWindow(_integer("sliding_window", "width", width, 1))


def prefix_lm(prefix_length: Any) -> MaskRecipe:
    """Query i sees the keys j < prefix_length and j <= i. A tensor [B] gives each batch element a length of its own."""
    if not is_tensor(prefix_length):
        return PrefixLM(_integer("prefix_lm", "prefix_length", prefix_length, 0))
    return RaggedPrefixLM(_shaped("prefix_lm", "prefix_length", prefix_length, (1,)))


def document_mask(ids: Any) -> MaskRecipe:
    """Query i sees the keys j of its document: ids[i] == ids[j]. ids: integers, [S] or [B, S]."""
    return DocumentMask(_shaped("document_mask", "ids", ids, (1, 2)))


def alibi(slopes: Any) -> ScoreRecipe:
    """score + slopes[h] * (j - i). slopes: one number for each query head, a tensor [Hq] or a sequence."""
    if isinstance(slopes, Sequence) and find_spec("torch") is not None:
        import torch

        slopes = torch.tensor(slopes, dtype=torch.float32)
    return Alibi(_shaped("alibi", "slopes", slopes, (1,)))


def softcap(cap: float) -> ScoreRecipe:
    """cap * tanh(score / cap): scores between -cap and cap."""
    if isinstance(cap, bool) or not isinstance(cap, (int, float)) or not 0 < cap < math.inf:
        raise _error("softcap", "cap", cap, "a positive number")
    return Softcap(float(cap))


@dataclass(frozen=True)
class Causal(MaskRecipe):
    """See `causal`."""

    offset: int

    def apply(self, scores: Any, q_start: int, k_start: int, head: int) -> None:
        keep_up_to_diagonal(scores, q_start - k_start + self.offset)

    def torch(self, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return q_idx + self.offset >= kv_idx

    def cover(self, q_start: int, q_stop: int, k_start: int, k_stop: int) -> int:
        if k_stop - 1 <= q_start + self.offset:
            return FULL
        return PARTIAL if k_start <= q_stop - 1 + self.offset else EMPTY


@dataclass(frozen=True)
class SlidingWindow(MaskRecipe):
    """See `sliding_window`."""

    width: int

    def apply(self, scores: Any, q_start: int, k_start: int, head: int) -> None:
        """Keeps where k - q + width > 0."""
        nisa.affine_select(
            dst=scores,
            pattern=[[1, scores.shape[1]]],
            channel_multiplier=-1,
            offset=k_start - q_start + self.width,
            on_true_tile=scores,
            on_false_value=MINUS_INFINITY,
            cmp_op=nl.greater,
        )

    def torch(self, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return q_idx - kv_idx < self.width

    def cover(self, q_start: int, q_stop: int, k_start: int, k_stop: int) -> int:
        if q_stop - 1 - k_start < self.width:
            return FULL
        return PARTIAL if q_start - (k_stop - 1) < self.width else EMPTY


@dataclass(frozen=True)
class PrefixLM(MaskRecipe):
    """See `prefix_lm`."""

    length: int

    def apply(self, scores: Any, q_start: int, k_start: int, head: int) -> None:
        start = max(self.length - k_start, 0)
        if start < scores.shape[1]:
            keep_up_to_diagonal(scores[:, start:], q_start - k_start - start)

    def torch(self, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return (kv_idx < self.length) | (q_idx >= kv_idx)

    def cover(self, q_start: int, q_stop: int, k_start: int, k_stop: int) -> int:
        if k_stop <= self.length or k_stop - 1 <= q_start:
            return FULL
        return PARTIAL if k_start < self.length or k_start <= q_stop - 1 else EMPTY


@dataclass(frozen=True)
class RaggedPrefixLM(MaskRecipe):
    """See `prefix_lm`: the lengths are data, so that one program serves all."""

    lengths: Any = field(compare=False)

    def check(self, shape: tuple[int, int, int, int]) -> None:
        require(
            "prefix_lm",
            "prefix_length",
            self.lengths,
            len(self.lengths) == shape[0],
            f"[{shape[0]}], one per batch element",
        )

    def for_launch(self, batch: int, heads: slice) -> MaskRecipe:
        return RaggedPrefixLM(self.lengths[batch : batch + 1].float())

    def apply(self, scores: Any, q_start: int, k_start: int, head: int) -> None:
        """Keeps where k - max(length - 1, q) <= 0."""
        m, n = scores.shape
        last = nl.ndarray((m, 1), dtype=nl.float32, buffer=nl.sbuf)
        query = nl.ndarray((m, 1), dtype=nl.float32, buffer=nl.sbuf)
        key = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.sbuf)
        fetch(dst=last, src=self.lengths.reshape((1, 1)).broadcast(0, m))
        nisa.iota(dst=query, pattern=[[0, 1]], offset=q_start, channel_multiplier=1)
        nisa.iota(dst=key, pattern=[[1, n]], offset=k_start)
        nisa.scalar_tensor_tensor(
            dst=last, data=last, op0=nl.add, operand0=-1.0, op1=nl.maximum, operand1=query
        )
        keep_where(scores, key, nl.less_equal, last)

    def torch(self, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return (kv_idx < self.lengths[b]) | (q_idx >= kv_idx)


@dataclass(frozen=True)
class DocumentMask(MaskRecipe):
    """See `document_mask`: the ids are data."""

    ids: Any = field(compare=False)

    def check(self, shape: tuple[int, int, int, int]) -> None:
        batch, longest = shape[0], max(shape[2:])
        fits = self.ids.shape[-1] >= longest and (len(self.ids.shape) == 1 or self.ids.shape[0] == batch)
        require(
            "document_mask",
            "ids",
            self.ids,
            fits,
            f"[{longest}] or [{batch}, {longest}], an id for each position",
        )

    def for_launch(self, batch: int, heads: slice) -> MaskRecipe:
        """Ids by rank: float32 is exact for them, however large they are."""
        ids = self.ids[batch] if len(self.ids.shape) == 2 else self.ids
        return DocumentMask(ids.unique(return_inverse=True)[1].float())

    def apply(self, scores: Any, q_start: int, k_start: int, head: int) -> None:
        m, n = scores.shape
        mine = nl.ndarray((m, 1), dtype=nl.float32, buffer=nl.sbuf)
        theirs = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.sbuf)
        fetch(dst=mine, src=self.ids[q_start : q_start + m].reshape((m, 1)))
        fetch(dst=theirs, src=self.ids[k_start : k_start + n].reshape((1, n)).broadcast(0, m))
        keep_where(scores, theirs, nl.equal, mine)

    def torch(self, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        if len(self.ids.shape) == 2:
            return self.ids[b, q_idx] == self.ids[b, kv_idx]
        return self.ids[q_idx] == self.ids[kv_idx]


@dataclass(frozen=True)
class Alibi(ScoreRecipe):
    """See `alibi`: the slopes are data."""

    slopes: Any = field(compare=False)

    def check(self, shape: tuple[int, int, int, int]) -> None:
        require(
            "alibi", "slopes", self.slopes, len(self.slopes) == shape[1], f"[{shape[1]}], one per query head"
        )

    def for_launch(self, batch: int, heads: slice) -> ScoreRecipe:
        return Alibi(self.slopes[heads].float())

    def apply(self, scores: Any, q_start: int, k_start: int, head: int) -> None:
        m, n = scores.shape
        slope = nl.ndarray((m, 1), dtype=nl.float32, buffer=nl.sbuf)
        distance = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.sbuf)
        fetch(dst=slope, src=self.slopes[head : head + 1].reshape((1, 1)).broadcast(0, m))
        nisa.iota(dst=distance, pattern=[[1, n]], offset=k_start - q_start, channel_multiplier=-1)
        nisa.scalar_tensor_tensor(
            dst=scores, data=distance, op0=nl.multiply, operand0=slope, op1=nl.add, operand1=scores
        )

    def torch(self, score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return score + self.slopes[h] * (kv_idx - q_idx)

    def slope(self, score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return score.new_ones(())


@dataclass(frozen=True)
class Softcap(ScoreRecipe):
    """See `softcap`."""

    cap: float

    def apply(self, scores: Any, q_start: int, k_start: int, head: int) -> None:
        nisa.activation(dst=scores, op=nl.tanh, data=scores, scale=1 / self.cap)
        nisa.tensor_scalar(dst=scores, data=scores, op0=nl.multiply, operand0=self.cap)

    def torch(self, score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return self.cap * (score / self.cap).tanh()

    def slope(self, score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return 1 - (score / self.cap).tanh().square()


def keep_up_to_diagonal(scores: Any, diagonal: int) -> None:
    """Minus infinity where column > row + diagonal. For the `apply` of masks."""
    nisa.affine_select(
        dst=scores,
        pattern=[[-1, scores.shape[1]]],
        channel_multiplier=1,
        offset=diagonal,
        on_true_tile=scores,
        on_false_value=MINUS_INFINITY,
        cmp_op=nl.greater_equal,
    )


def keep_where(scores: Any, tile: Any, compare: Any, column: Any) -> None:
    """Minus infinity where `tile compare column` does not hold. Dimensions: scores, tile [m, n], column [m, 1]."""
    seen = nl.ndarray(scores.shape, dtype=nl.uint8, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=seen, data=tile, op0=compare, operand0=column)
    nisa.select_reduce(dst=scores, predicate=seen, on_true=scores, on_false=MINUS_INFINITY)


def require(recipe: str, name: str, tensor: Any, fits: bool, allowed: str) -> None:
    """Raise if a tensor does not fit the call."""
    if not fits:
        raise errors.ShapeError(
            f"flex_attention: `{name}` of {recipe} does not fit this call",
            operand=name,
            found=f"shape {list(tensor.shape)}",
            allowed=allowed,
        )


def _integer(recipe: str, name: str, value: Any, least: int | None) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or (least is not None and value < least):
        raise _error(recipe, name, value, "an integer" + ("" if least is None else f" of at least {least}"))
    return value


def _shaped(recipe: str, name: str, value: Any, ranks: tuple[int, ...]) -> Any:
    if not is_tensor(value) or len(value.shape) not in ranks:
        raise _error(recipe, name, value, " or ".join(f"a tensor of {rank} dimensions" for rank in ranks))
    return value


def _error(recipe: str, name: str, value: Any, allowed: str) -> errors.ArgumentError:
    found = f"shape {list(value.shape)}" if is_tensor(value) else repr(value)
    return errors.ArgumentError(
        f"{recipe}: cannot take this `{name}`", operand=name, found=found, allowed=allowed
    )
