"""Which token sees which key, computed on the device from the length of the sequence: lengths are data, not program.

Written for one sequence and used by all its heads. Rows of the cache after the end of the sequence may hold anything,
NaN included: their scores are replaced, not added to, and their values are cleared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.attention.flash_decode.loading import Span


@dataclass(frozen=True)
class Visibility:
    """Of one span: seen [128, L, T], 1 where token t sees the key, else 0; kept [128, L] integers, all bits set for a
    key of the sequence, none after its end."""

    seen: Any
    kept: Any


def load_length(length: Any) -> Any:
    """The length of the sequence on every partition, as float32. Dimensions: length [1, 1] int32 -> [128, 1]."""
    shape = (nl.tile_size.pmax, 1)
    whole = nl.ndarray(shape, dtype=length.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=whole, src=length.broadcast(0, nl.tile_size.pmax))
    result = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=whole)
    return result


def make_visibility(span: Span, length: Any, tokens: int, window: int | None, word: Any) -> Visibility:
    """What is visible of a span.

    Dimensions: length [128, 1] float32. word: the integer type that `kept` masks values with.

    Pseudocode:
        behind[p, i] = key of partition p, place i - length      # -1 for the last key of the sequence
        seen[t] = behind <= t - T  and  behind > t - T - window
        kept = -(behind < 0)
    """
    shape = (nl.tile_size.pmax, span.per)
    position = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
    behind = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.iota(dst=position, pattern=[[1, span.per]], offset=span.start, channel_multiplier=span.per)
    nisa.tensor_scalar(dst=behind, data=position, op0=nl.subtract, operand0=length)
    seen = nl.ndarray((*shape, tokens), dtype=nl.uint8, buffer=nl.sbuf)
    for t in range(tokens):
        last = float(t - tokens)
        if window is None:
            nisa.tensor_scalar(dst=seen[:, :, t], data=behind, op0=nl.less_equal, operand0=last)
            continue
        inside = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=inside, data=behind, op0=nl.greater, operand0=last - window)
        nisa.scalar_tensor_tensor(
            dst=seen[:, :, t], data=behind, op0=nl.less_equal, operand0=last, op1=nl.multiply, operand1=inside
        )
    kept = nl.ndarray(shape, dtype=word, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=kept, data=behind, op0=nl.less, operand0=0.0, op1=nl.multiply, operand1=-1.0)
    return Visibility(seen, kept)


def mask_scores(scores: Any, capped: Any, seen: Any) -> None:
    """scores = capped where seen, -inf elsewhere. Dimensions: scores, capped [128, n, m], seen [128, n, T]."""
    side, count, m = scores.shape
    tokens = seen.shape[2]
    split = (side, count, m // tokens, tokens)
    nisa.memset(dst=scores, value=float("-inf"), engine=nisa.engine.gpsimd)
    nisa.tensor_copy_predicated(
        dst=scores.reshape(split),
        src=capped.reshape(split),
        predicate=seen.expand_dim(2).broadcast(2, m // tokens),
    )


def clear_values(values: Any, kept: Any) -> None:
    """Clear every bit of the rows that are not kept. Dimensions: values [128, L, D], kept [128, L]."""
    bits = values.view(kept.dtype)
    nisa.tensor_tensor(
        dst=bits,
        data1=bits,
        data2=kept.expand_dim(2).broadcast(2, bits.shape[2]),
        op=nl.bitwise_and,
        engine=nisa.engine.vector,
    )
