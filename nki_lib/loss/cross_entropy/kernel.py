"""Cross entropy of rows of logits, and its gradient, each from one reading of the logits.

Letters used in every docstring here:
  N  rows, N = m T: row p T + t lies on partition p, so that what belongs to the rows is a tile [m, T]
  V  classes (the vocabulary), C chunks of them with n classes each
  x  a logit, after the cap if there is one; lse = log(sum of exp(x)) of a row; p = exp(x - lse)

The loss of a row is  a (lse - x[target]) + b sum over c of w[c] (lse - x[c]) + z lse^2,  where a is 1 - smoothing times
the weight of the row, b = smoothing / V, and w are the weights of the classes, or 1. Read this, then `targets.py`,
`statistics.py` for the way there, `slopes.py` for the way back.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import load, spans
from nki_lib.loss.cross_entropy.slopes import Slopes
from nki_lib.loss.cross_entropy.statistics import Statistics, bent, losses
from nki_lib.loss.cross_entropy.targets import Targets, by_partition, load_weights

CHUNK_BYTES = 16384  # of a row in one tile: long runs for the DMA, and several such tiles fit
SAME_TABLE = 4  # tiles of a cap that take their tanh one after the other, before their exponentials


@nki.jit
def cross_entropy(
    logits: Any,
    target: Any,
    row_weight: Any = None,
    class_weight: Any = None,
    smoothing: float = 0.0,
    z: float = 0.0,
    cap: float | None = None,
) -> Any:
    """The loss and the log sum exp of every row, in float32.

    Dimensions: logits [N, V]; target [N] int32, negative where a row is ignored: its loss is 0; row_weight [N] and
    class_weight [V] float32 or None -> [N, 2]. N is at most 128, or a multiple of 128. class_weight counts for
    smoothing only; cap makes logits cap * tanh(logit / cap).

    Pseudocode:
        gather the target's logit of every row
        for each chunk of classes, for each tile of rows:
            load; top = maximum, total = sum of exp(x - top); for smoothing also the sum of w x
        lse = log(sum over the chunks of total exp(top - highest)) + highest;  the losses from it, all rows at once
    """
    rows = by_partition(logits)
    m, height, classes = rows.shape
    targets = Targets(target, rows)
    picked = bent(targets.gather(rows), cap)
    chunks = chunks_of(logits, cap)
    found = Statistics((m, height, len(chunks)), cap)
    weights = class_weight if smoothing else None
    for c in range(len(chunks)):
        low, high = chunks[c]
        weight = load_weights(weights, low, high, m)
        for start, stop in spans(height, 1 if cap is None else SAME_TABLE):
            tiles = [bent(load(rows[:, t, low:high]), cap) for t in range(start, stop)]
            for t in range(start, stop):
                if smoothing:
                    found.sum_weighted(tiles[t - start], weight, t, c)
                found.sum_exponentials(tiles[t - start], t, c)
    both = losses(found, picked, targets.valid, (row_weight, weights), classes, (smoothing, z))
    out = nl.ndarray((logits.shape[0], 2), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=by_partition(out), src=both)
    return out


def chunks_of(logits: Any, cap: float | None) -> list[Any]:
    """The classes as pairs (low, high). With a cap a tile has more copies, in float32. Dimensions: logits [N, V]."""
    size = logits.dtype.itemsize if cap is None else 4
    return spans(logits.shape[1], CHUNK_BYTES // size)


@nki.jit
def cross_entropy_backward(
    grad: Any,
    logits: Any,
    target: Any,
    lse: Any,
    row_weight: Any = None,
    class_weight: Any = None,
    smoothing: float = 0.0,
    z: float = 0.0,
    cap: float | None = None,
) -> Any:
    """The gradient of the logits from those of the losses; the softmax is made again, from logits and lse.

    Dimensions: grad, lse [N] float32, the others as `cross_entropy` takes them -> [N, V]. Rows ignored get zeros.

    Pseudocode:
        of every row: slope = grad (a + b sum of w + 2 z lse), b = grad b, and at the target b = grad (a + b w)
        for each chunk of classes, for each tile of rows: load, store slope exp(x - lse) - b w
        make the same of the targets' logits, with their own b, and scatter it over what was stored
    """
    rows = by_partition(logits)
    m, height, classes = rows.shape
    chunks = chunks_of(logits, cap)
    targets = Targets(target, rows)
    weights = class_weight if smoothing else None
    slopes = Slopes(targets, (grad, lse, row_weight), weights, classes, (smoothing, z, cap))
    picked = targets.gather(rows)
    at_target = nl.ndarray((m, height), dtype=logits.dtype, buffer=nl.sbuf)
    for t in range(height):
        slopes.write(at_target[:, t : t + 1], picked[:, t : t + 1], t, slopes.at_target, None)
    out = nl.ndarray(logits.shape, dtype=logits.dtype, buffer=nl.shared_hbm)
    results = by_partition(out)
    for low, high in chunks:
        weight = load_weights(weights, low, high, m)
        for t in range(height):
            tile = load(rows[:, t, low:high])
            result = nl.ndarray(tile.shape, dtype=out.dtype, buffer=nl.sbuf)
            slopes.write(result, tile, t, slopes.elsewhere, weight)
            nisa.dma_copy(dst=results[:, t, low:high], src=result)
    targets.scatter(results, at_target)
    return out
