"""`nki.isa`: the instruction set. One instruction, one file, one class; importing this package fills the registry.

Read `tensor_copy.py` first. `alu.py` holds the operators, `compute.py` and `costs.py` what instructions share.
"""

from __future__ import annotations

from typing import Any

from nki.enums import (
    dge_mode,
    dma_engine,
    engine,
    matmul_perf_mode,
    nc_version,
    oob_mode,
    reduce_cmd,
)
from nki.errors import NkiValidationError
from nki.ir.builder import current
from nki.isa.activate2 import activate2 as activate2
from nki.isa.activation import activation as activation
from nki.isa.activation_reduce import activation_reduce as activation_reduce
from nki.isa.affine_select import affine_select as affine_select
from nki.isa.bn_aggr import bn_aggr as bn_aggr
from nki.isa.bn_stats import bn_stats as bn_stats
from nki.isa.core_barrier import core_barrier as core_barrier
from nki.isa.dma_compute import dma_compute as dma_compute
from nki.isa.dma_copy import dma_copy as dma_copy
from nki.isa.dma_transpose import dma_transpose as dma_transpose
from nki.isa.dropout import dropout as dropout
from nki.isa.exponential import exponential as exponential
from nki.isa.export import NkiInstruction
from nki.isa.iota import iota as iota
from nki.isa.local_gather import local_gather as local_gather
from nki.isa.max8 import max8 as max8
from nki.isa.memset import memset as memset
from nki.isa.nc_find_index8 import nc_find_index8 as nc_find_index8
from nki.isa.nc_match_replace8 import nc_match_replace8 as nc_match_replace8
from nki.isa.nc_matmul import nc_matmul as nc_matmul
from nki.isa.nc_matmul_mx import nc_matmul_mx as nc_matmul_mx
from nki.isa.nc_n_gather import nc_n_gather as nc_n_gather
from nki.isa.nc_stream_shuffle import nc_stream_shuffle as nc_stream_shuffle
from nki.isa.nc_transpose import nc_transpose as nc_transpose
from nki.isa.nonzero_with_count import nonzero_with_count as nonzero_with_count
from nki.isa.quantize_mx import quantize_mx as quantize_mx
from nki.isa.rand2 import rand2 as rand2
from nki.isa.rand_get_state import rand_get_state as rand_get_state
from nki.isa.rand_set_state import rand_set_state as rand_set_state
from nki.isa.range_select import range_select as range_select
from nki.isa.reciprocal import reciprocal as reciprocal
from nki.isa.register_alloc import register_alloc as register_alloc
from nki.isa.register_load import register_load as register_load
from nki.isa.register_move import register_move as register_move
from nki.isa.register_store import register_store as register_store
from nki.isa.removed import removed
from nki.isa.rng import rng as rng
from nki.isa.scalar_tensor_tensor import scalar_tensor_tensor as scalar_tensor_tensor
from nki.isa.select_reduce import select_reduce as select_reduce
from nki.isa.sendrecv import sendrecv as sendrecv
from nki.isa.sequence_bounds import sequence_bounds as sequence_bounds
from nki.isa.set_rng_seed import set_rng_seed as set_rng_seed
from nki.isa.tensor_copy import tensor_copy as tensor_copy
from nki.isa.tensor_copy_predicated import tensor_copy_predicated as tensor_copy_predicated
from nki.isa.tensor_partition_reduce import tensor_partition_reduce as tensor_partition_reduce
from nki.isa.tensor_reduce import tensor_reduce as tensor_reduce
from nki.isa.tensor_scalar import tensor_scalar as tensor_scalar
from nki.isa.tensor_scalar_cumulative import tensor_scalar_cumulative as tensor_scalar_cumulative
from nki.isa.tensor_scalar_reduce import tensor_scalar_reduce as tensor_scalar_reduce
from nki.isa.tensor_tensor import tensor_tensor as tensor_tensor
from nki.isa.tensor_tensor_scan import tensor_tensor_scan as tensor_tensor_scan
from nki.isa.topk import topk as topk
from nki.registers import VirtualRegister
from nki.target import get_target

# Older spellings, deprecated but the most common ones in public kernels.
tensor_engine = engine.tensor
vector_engine = engine.vector
scalar_engine = engine.scalar
gpsimd_engine = engine.gpsimd
unknown_engine = engine.unknown


def get_nc_version() -> nc_version:
    """The generation that is compiled for: that of the kernel being staged, else the environment's."""
    builder = current()
    return builder.target.version if builder is not None else get_target().version


def get_nc_sub_version() -> int:
    """The silicon revision within the generation. Only the first is modelled."""
    return 0


__all__ = [
    "NkiInstruction",
    "NkiValidationError",
    "VirtualRegister",
    "dge_mode",
    "dma_engine",
    "engine",
    "get_nc_sub_version",
    "get_nc_version",
    "gpsimd_engine",
    "matmul_perf_mode",
    "nc_version",
    "oob_mode",
    "reduce_cmd",
    "scalar_engine",
    "tensor_engine",
    "unknown_engine",
    "vector_engine",
]
# Instructions need no entry: what an instruction file exports is public.
__all__ += [
    name for name, value in list(globals().items()) if callable(value) and hasattr(value, "instruction")
]


def __getattr__(name: str) -> Any:
    """Instructions of older releases: using them raises the error that says what to write instead."""
    return removed(name)
