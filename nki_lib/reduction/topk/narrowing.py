"""Fewer elements to choose from: the k largest all lie in the k groups of neighbours with the largest maxima.

Why: an element outside of these groups has k elements before it, the maxima of these groups. That holds for equal
elements too, as of equal maxima the first group is taken, and its elements come first. The groups are then put in the
order of their places, so that the first of equal elements still is the first.

Letters:  m  partitions   w  width of a line   k  elements chosen, n of them up to whole eights   q  elements of a group
"""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.reduction.topk.selection import EIGHT, choose, gathered, whole_eights

GATHER_CYCLES = 8  # of the Vector engine, for one place that GpSimd looks up


def choose_by_groups(keys: Any, k: int) -> tuple[Any, Any]:
    """`choose`, from the groups that matter where this is faster. Dimensions: keys [m, w] -> [m, n], [m, k or n]."""
    m, width = keys.shape
    size = group_size(width, k)
    if size == 1:
        return choose(keys, k)
    count = whole_eights(k)
    maxima = nl.ndarray((m, width // size), dtype=nl.float32, buffer=nl.sbuf)
    by_group = keys.reshape_dim(1, (width // size, size))
    nisa.tensor_reduce(dst=maxima, data=by_group, op=nl.maximum, axis=2)
    places = elements_of(in_order(choose(maxima, count)[1]), size)
    few = gathered(keys, places)
    best, found = choose(few, k)
    return best, gathered(places, found[:, :k])


def in_order(groups: Any) -> Any:
    """The negatives of numbers, the least number first. Dimensions: [m, n] uint32 -> [m, n] float32."""
    negated = nl.ndarray(groups.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=negated, data=groups, op0=nl.multiply, operand0=-1.0)
    return choose(negated, groups.shape[1])[0]


def elements_of(negated: Any, size: int) -> Any:
    """The places of all elements of groups -negated. Dimensions: [m, n] float32 -> [m, n * q] uint32."""
    m, count = negated.shape
    within = nl.ndarray((m, size), dtype=nl.float32, buffer=nl.sbuf)
    places = nl.ndarray((m, count, size), dtype=nl.uint32, buffer=nl.sbuf)
    nisa.iota(dst=within, pattern=[[1, size]])
    nisa.scalar_tensor_tensor(
        dst=places,
        data=negated.expand_dim(2).broadcast(2, size),
        op0=nl.multiply,
        operand0=-float(size),
        op1=nl.add,
        operand1=within.expand_dim(1).broadcast(1, count),
    )
    return places.reshape((m, count * size))


def group_size(width: int, k: int) -> int:
    """The power of two that takes the least time; 1 if choosing from all elements does."""
    sizes = [1 << i for i in range(width.bit_length()) if width % (1 << i) == 0]
    return min(sizes, key=lambda size: cycles_with(width, k, size))


def cycles(width: int, k: int) -> int:
    """Of the Vector engine, for choosing from one line in each partition."""
    return cycles_with(width, k, group_size(width, k))


def cycles_with(width: int, k: int, size: int) -> int:
    """The same with groups of this size. Each eight of k takes two passes over what is chosen from."""
    count = whole_eights(k)
    passes = 2 * count // EIGHT
    if size == 1:
        return passes * width
    if width // size < 2 * count:  # too few groups to leave any out
        return passes * width * 2
    few = count * size
    return width + passes * (width // size + count + few) + GATHER_CYCLES * few
