"""Experts for many tokens: sorted by expert on the device, so that nothing is computed twice and none is dropped.

Letters used in every docstring here:
  T  tokens, m of them in a block, up to 128     H  width of the model, h blocks of 128
  E  experts, of which a token chooses k         I  width of an expert, w of it in a unit, i blocks of 128

`routing.py` makes blocks of m tokens of one expert. They are computed in the order of the experts, so the weights of an
expert come in once (`loading.py`), while the one before is busy. What a block gives is added to the rows of its tokens
in HBM, in float32 (`block.py`). Every sum has a fixed order, and no other token can spoil a row.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import fetch, spans
from nki_lib.moe.moe_prefill.block import AHEAD, Bench, Block, begin, make_bench
from nki_lib.moe.moe_prefill.loading import Experts, Loader, Plan, make_unit, plan_units
from nki_lib.moe.moe_prefill.routing import SHORT, everyone, route


@nki.jit
def moe_prefill(
    x: Any,
    gate_up: Any,
    down: Any,
    weights: Any,
    indices: Any,
    activation: str = "swiglu",
    alpha: float = 1.702,
    limit: float = 7.0,
    first: int = 0,
    gate_up_bias: Any = None,
    down_bias: Any = None,
    gate_up_scale: Any = None,
    down_scale: Any = None,
    shared_gate_up: Any = None,
    shared_down: Any = None,
    shared_gate: Any = None,
) -> Any:
    """out[t] = sum over the experts e that t chose of weight * (act(x[t] gate[e]) * (x[t] up[e])) down[e].

    Dimensions: x [T, H], gate_up [E, H, 2, I], down [E, I, H], weights [T, k], indices [T, k] int32 -> [T, H]; biases
    and scales as the operator takes them; shared_gate_up [1, H, 2, Is], shared_down [1, Is, H], shared_gate [T, 1].
    T is a power of two up to 128, or a multiple of it. first: the first of these experts among all.

    Pseudocode:
        out = 0; the shared expert, if there is one, is an expert whom everyone chose
        sort the tokens into blocks by expert
        for each unit, on the device: load its weights, while the unit before is computed
            for each of its blocks, on the device: out[tokens] += weight * what the expert gives
        round out
    """
    # In float32 it is the result itself.
    buffer = nl.shared_hbm if x.dtype == nl.float32 else nl.private_hbm
    total = nl.ndarray(x.shape, dtype=nl.float32, buffer=buffer)
    clear(total)
    bench = make_bench(min(x.shape[0], nl.tile_size.pmax), x.shape[1], x.dtype)
    how = (activation, alpha, limit)
    if shared_gate_up is not None:
        shared = Experts(shared_gate_up, shared_down)
        plan = plan_units(x.shape[1], shared_gate_up.shape[3], x.dtype, shared)
        routing = everyone(x.shape[0], shared_gate, len(plan.pieces), AHEAD)
        run_units(x, total, routing, bench, shared, plan, how)
    experts = Experts(gate_up, down, gate_up_bias, down_bias, gate_up_scale, down_scale)
    plan = plan_units(x.shape[1], gate_up.shape[3], x.dtype, experts)
    routing = route(weights, indices, gate_up.shape[0], first, len(plan.pieces), AHEAD)
    run_units(x, total, routing, bench, experts, plan, how)
    if x.dtype == nl.float32:
        return total
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    convert(out, total)
    return out


def run_units(x: Any, total: Any, routing: Any, bench: Bench, experts: Experts, plan: Plan, how: Any) -> None:
    """total += what the experts give to their tokens. Dimensions: x, total [T, H]. how: activation, alpha and limit.

    One pass of the loop runs two experts, or all pieces of one. Units take turns in two places, if there is room:
    weights come into one while the other is used.
    """
    pieces = plan.pieces
    count = experts.gate_up.shape[0]
    bodies = [(0, part) for part in range(len(pieces))]
    if len(pieces) == 1 and count > 1:
        bodies.append((1, 0))
    units = [make_unit(x.shape[1], pieces[0][1], x.dtype, experts, routing.rows) for _ in range(plan.places)]
    start, stop = nisa.register_alloc(0), nisa.register_alloc()
    shorter = routing.rows > SHORT and routing.middles is not routing.ends
    begin(x, routing, bench, experts.packed)

    def one_pass(expert: Any) -> None:
        for number, (ahead, part) in enumerate(bodies):
            unit = units[number % plan.places]
            Loader(experts, expert, ahead, pieces[part]).load(unit)
            block = Block(x, total, routing, bench, unit, experts, pieces[part], how)
            place = ahead * routing.parts + part
            if shorter:
                routing.read(stop, routing.middles, expert, place)
                nl.fori_loop(start, stop, block.run)
                nisa.register_move(start, stop)
            routing.read(stop, routing.ends, expert, place)
            nl.fori_loop(start, stop, block.run_short if shorter else block.run)
            nisa.register_move(start, stop)

    nl.fori_loop(0, count, one_pass, bodies[-1][0] + 1)


def clear(total: Any) -> None:
    """total = 0. Dimensions: [T, H]."""
    count, width = total.shape
    side = min(count, nl.tile_size.pmax)
    zero = nl.ndarray((side, width), dtype=total.dtype, buffer=nl.sbuf)
    nisa.memset(dst=zero, value=0.0)
    for low, high in spans(count, side):
        fetch(dst=total[low:high, :], src=zero[: high - low, :])


def convert(out: Any, total: Any) -> None:
    """out = total, rounded. Dimensions: [T, H]."""
    for low, high in spans(out.shape[0], nl.tile_size.pmax):
        tile = nl.ndarray((high - low, out.shape[1]), dtype=total.dtype, buffer=nl.sbuf)
        rounded = nl.ndarray(tile.shape, dtype=out.dtype, buffer=nl.sbuf)
        fetch(dst=tile, src=total[low:high, :])
        nisa.tensor_copy(dst=rounded, src=tile)
        fetch(dst=out[low:high, :], src=rounded)
