"""Experts for up to 128 tokens: reading weights is the work, so each expert that was chosen is read once.

Letters used in every docstring here:
  T  tokens, up to 128    H  width of the model, h = ceil(H / 128)    E  experts
  I  width of an expert   k  experts that a token chooses             Is  width of the shared expert

Weights are what the Tensor engine holds, tokens what moves through it: a step costs its few columns, not the many of
the weights. So everything is transposed, channels on the partitions: x^T [H, T], hidden^T [I, T], result^T [H, T].

`routing.py` lists the chosen experts on the device, and a loop there runs over the list. While one expert is multiplied
piece by piece, the DMA engines fill the pieces that the Tensor engine has finished with those of the next.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import fetch, spans
from nki_lib.moe.moe_decode.expert import Expert, add_expert, layout_of
from nki_lib.moe.moe_decode.loading import load_tokens, slabs
from nki_lib.moe.moe_decode.matrix import make_spread
from nki_lib.moe.moe_decode.routing import Rows, list_chosen, make_table, rows_of


@nki.jit
def moe_decode(
    x: Any,
    gate_up: Any,
    down: Any,
    weights: Any,
    indices: Any,
    gate_up_bias: Any = None,
    down_bias: Any = None,
    gate_up_scale: Any = None,
    down_scale: Any = None,
    shared_gate_up: Any = None,
    shared_down: Any = None,
    shared_gate: Any = None,
    activation: str = "swiglu",
    alpha: float = 1.702,
    limit: float = 7.0,
    chosen: bool = True,
) -> Any:
    """The sum over the experts e that token t chose of weight * expert_e(x[t]), plus gate[t] * shared(x[t]).

    Dimensions: x [T, H]; gate_up [E, H, 2, I], down [E, I, H], with biases and scales as `Expert` has them after E;
    weights [T, k], indices [T, k] int32, -1 for none; shared_gate_up [H, 2, Is], shared_down [Is, H], shared_gate
    [1, T] -> [T, H]. chosen: read the experts on the list only; else all, which needs no list. (trn1 cannot make one.)

    Pseudocode:
        transpose x; make the table of weights; total = gate * shared(x)
        for each expert that some token chose, on the device:
            total += weight * expert(x) for the tokens that chose it
        transpose total, round, store
    """
    tokens, width = x.shape
    experts, bend = gate_up.shape[0], (activation, alpha, limit)
    table = make_table(weights, indices, experts)
    found = list_chosen(table) if chosen and nisa.get_nc_version() > nisa.nc_version.gen2 else None
    total = nl.ndarray((nl.tile_size.pmax, len(slabs(0, width)), tokens), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=total, value=0.0)
    if shared_gate_up is not None:
        shared = Expert(shared_gate_up, shared_down)
        layout = layout_of(shared, width, tokens, x.dtype)
        columns = load_tokens(x, slabs(0, width))
        add_expert(total, columns, shared, load_gate(shared_gate), bend, layout)
    everything = (
        *(gate_up, down, gate_up_bias, down_bias),
        *(powers(scale) for scale in (gate_up_scale, down_scale)),
    )

    def at(expert: Any) -> Expert:
        return Expert(*[None if tensor is None else tensor.select(0, expert) for tensor in everything])

    first = Expert(*[None if tensor is None else tensor[0] for tensor in everything])
    layout = layout_of(first, width, tokens, x.dtype)
    columns = load_tokens(x, slabs(0, width, layout.packed))
    if layout.blocks:
        rows = max(min(layout.rows, gate_up.shape[1]), min(layout.block // layout.packed, down.shape[1]))
        layout = replace(layout, spread=make_spread(rows, layout.packed, layout.dtype))
    count, expert = nisa.register_alloc(experts), nisa.register_alloc(0)

    def add_one(number: Any) -> None:
        if found is None:
            nisa.register_move(expert, number)
        else:
            nisa.register_load(expert, found.select(1, number))
        add_expert(total, columns, at(expert), rows_of(table, expert), bend, layout)

    if found is not None:
        nisa.register_load(count, found[:, experts : experts + 1])
    nl.fori_loop(0, count, add_one)
    out = nl.ndarray((tokens, width), dtype=x.dtype, buffer=nl.shared_hbm)
    store(out, total)
    return out


def powers(scale: Any) -> Any:
    """Bits of exponents as the numbers they mean; other scales, or None, as they are."""
    return scale.view(nl.float8_e8m0fnu) if scale is not None and scale.dtype == nl.uint8 else scale


def load_gate(gate: Any) -> Rows:
    """What the shared expert is multiplied by. Dimensions: gate [1, T] in HBM, or None for 1."""
    if gate is None:
        return Rows()
    side, tokens = nl.tile_size.pmax, gate.shape[1]
    row = nl.ndarray((side, tokens), dtype=gate.dtype, buffer=nl.sbuf)
    fetch(dst=row, src=gate.broadcast(0, side))
    weight = nl.ndarray((side, tokens), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=weight, src=row)
    return Rows(weight)


def store(out: Any, total: Any) -> None:
    """out = total transposed, rounded. Dimensions: out [T, H] in HBM, total [128, h, T] float32."""
    tokens, width = out.shape
    tile = nl.ndarray((tokens, width), dtype=out.dtype, buffer=nl.sbuf)
    for first, stop in spans(width, nl.tile_size.psum_bank_fmax):
        turned = nl.ndarray((tokens, stop - first), dtype=nl.float32, buffer=nl.psum)
        for place in slabs(first, stop):
            block = total[: place.count, place.start // nl.tile_size.pmax, :]
            nisa.nc_transpose(dst=turned[:, place.of(first)], data=block)
        nisa.tensor_copy(dst=tile[:, first:stop], src=turned)
    nisa.dma_copy(dst=out, src=tile)
