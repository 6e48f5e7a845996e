"""What random values would seldom hit: sizes that rules tie together, the memory or dtype of an operand, attributes.

Tests nothing. Followed most of the time only, so that other legal calls are made too.
"""

from __future__ import annotations

from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki.isa.activate2 import BYPASS
from tests.ir.strategies import TIED

DIMS: dict[str, dict[str, Any]] = {
    **TIED,
    "topk": {**TIED["topk"], "P": "16"},
    "nc_transpose": {"dst": "8 16", "data": "16 8"},
    "nc_matmul": {"dst": "M N"},
    "nonzero_with_count": {"src": "16 8", "dst": "16 9"},
    "local_gather": {"src_buffer": "32 8", "index": "32 1", "dst": "32 16"},
    "rand_get_state": {"dst": "16 6"},
    "rand_set_state": {"src_seeds": "16 6"},
    "sequence_bounds": {"segment_ids": "1 8", "dst": "1 16"},
    "register_load": {"src": "1 1"},
    "register_store": {"dst": "1 1"},
    "nc_n_gather": {"data": "16 8", "P": "16"},
    "max8": {"F": "16"},
    "bn_aggr": {"data": "P 6"},
    "tensor_partition_reduce": {"dst": "1 F"},
}
"""Sizes by dimension letter, dimensions by operand: numbers or letters."""

PLACES: dict[tuple[str, str], tuple[str, ...]] = {
    ("nc_matmul", "dst"): ("psum", "float32"),
    ("nc_matmul_mx", "dst"): ("psum", "float32"),
    ("nc_transpose", "dst"): ("psum",),
    ("nc_transpose", "data"): ("sbuf",),
    ("rand_get_state", "dst"): ("sbuf",),
}
"""Memory and dtype of operands."""

INDICES = ("index", "indices", "src_index")
"""Operands that read the tiles of small numbers."""

_numbers = (0, 1.5, -2)
ATTRIBUTES: dict[str, dict[str, tuple[Any, ...]]] = {
    "tensor_reduce": {"axis": ((1,), (1,), (1, 2), (2,)), "keepdims": (True, False)},
    "activation_reduce": {"reduce_op": (nl.add,)},
    "activate2": {"op0": (nl.multiply, BYPASS), "op1": (BYPASS,), "imm0": _numbers, "imm1": _numbers},
    "nc_stream_shuffle": {
        "shuffle_mask": (tuple(range(32)), (0,) * 32, (255,) * 31 + (3,), tuple(range(31, -1, -1)))
    },
    "dma_transpose": {"priority": (None,), "axes": (None,)},
    "dma_copy": {"priority": (None,), "engine": (nisa.engine.unknown,)},
    "nc_matmul": {
        "perf_mode": (nisa.matmul_perf_mode.none,),
        "accumulate": (None, None, True, False),
        "is_transpose": (False,),
        "tile_position": ((),),
        "tile_size": ((),),
    },
}
