"""Group-limited routing, as DeepSeek-V3: experts of the best groups only. Letters: see `kernel.py`."""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.moe.router_topk.scoring import LOWEST
from nki_lib.reduction.topk.selection import EIGHT, GONE, choose


def keep_best_groups(keys: Any, groups: int, kept: int) -> None:
    """Move the keys outside of the `kept` best groups below all others; a group counts as its two best keys together.

    Dimensions: keys [m, g, E], E / groups experts in a group.
    """
    m, g, experts = keys.shape
    by_group = keys.reshape_dim(2, (groups, experts // groups))
    best = best_of_groups(by_group)
    scores = nl.ndarray((m, g, max(groups, EIGHT)), dtype=nl.float32, buffer=nl.sbuf)
    if groups < EIGHT:
        nisa.memset(dst=scores, value=GONE)
    mine = scores[:, :, :groups]
    nisa.tensor_tensor(dst=mine, data1=best[:, :, :, 0], data2=best[:, :, :, 1], op=nl.add)
    for i in range(g):
        choose(scores[:, i, :], kept)
    # What has been taken away is kept; to the others the lowest number is added.
    penalties = nl.ndarray((m, g, groups), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(
        dst=penalties, data=mine, op0=nl.not_equal, operand0=GONE, op1=nl.multiply, operand1=LOWEST
    )
    every = penalties.expand_dim(3).broadcast(3, experts // groups)
    nisa.tensor_tensor(dst=by_group, data1=by_group, data2=every, op=nl.add)


def best_of_groups(by_group: Any) -> Any:
    """The eight best keys of every group, in order. Dimensions: [m, g, G, E/G] -> [m, g, G, 8]."""
    m, g, groups, size = by_group.shape
    best = nl.ndarray((m, g, groups, EIGHT), dtype=nl.float32, buffer=nl.sbuf)
    if size < EIGHT:
        filled = nl.ndarray((m, g, groups, EIGHT), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=filled, value=GONE)
        nisa.tensor_copy(dst=filled[:, :, :, :size], src=by_group)
        by_group = filled
    for i in range(g):
        for group in range(groups):
            nisa.max8(dst=best[:, i, group, :], src=by_group[:, i, group, :])
    return best
