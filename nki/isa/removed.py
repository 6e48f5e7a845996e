"""Instructions and keywords of older releases, each with what to write instead."""

from __future__ import annotations

from typing import Any, Final

from nki.replaced import replaced

_BY_REGISTER = "nisa.tensor_copy with t.ap(pattern, scalar_offset=register)"

INSTRUCTIONS: Final = {
    "builtin_custom_op": "write the operator with the instructions of nki.isa",
    "fp32": "write float(numpy.finfo(numpy.float32).min) for fp32.min",
    "tensor_copy_dynamic_dst": f"use {_BY_REGISTER} as dst",
    "tensor_copy_dynamic_src": f"use {_BY_REGISTER} as src",
}

KEYWORDS: Final = {
    "dst_rmw_op": "dma_copy only copies; accumulate with nisa.dma_compute(dst, [src, dst], reduce_op)",
    "dtype": "an instruction writes into the tile you pass as dst, and the dtype is that of this tile",
    "imm": "the parameter is called src: nisa.register_move(dst, src)",
    "is_moving_zero": "the parameter is called is_moving_onezero",
    "mask": "there are no masks: pass slices of exactly the elements to work on, t[0:rows, 0:columns]",
    "num_channels": "leave it out; collective_permute_implicit takes channel_ids=[...]",
    "pred": "nisa.affine_select takes pattern=, channel_multiplier=, offset= and cmp_op=",
    "psumAccumulateFlag": "leave it out; accumulate= says whether a matmul adds to dst",
    "unique_indices": "only nisa.dma_compute has it",
    "use_gpsimd_dma": "pass dma_engine=nisa.dma_engine.gpsimd_dma, or leave it out",
}


def removed(name: str) -> Any:
    """What `nki.isa` has under a name of an older release; using it raises."""
    return replaced("nki.isa", name, INSTRUCTIONS)
