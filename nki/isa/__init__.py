"""`nki.isa`: the instruction set. One instruction, one file, one class; importing this package fills the registry.

Read `tensor_copy.py` first. `alu.py` holds the operators, `compute.py` and `costs.py` what instructions share.
"""

from __future__ import annotations

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
from nki.isa.activation import activation
from nki.isa.activation_reduce import activation_reduce
from nki.isa.affine_select import affine_select
from nki.isa.dma_copy import dma_copy
from nki.isa.export import NkiInstruction
from nki.isa.iota import iota
from nki.isa.memset import memset
from nki.isa.nc_matmul import nc_matmul
from nki.isa.nc_transpose import nc_transpose
from nki.isa.reciprocal import reciprocal
from nki.isa.scalar_tensor_tensor import scalar_tensor_tensor
from nki.isa.tensor_copy import tensor_copy
from nki.isa.tensor_reduce import tensor_reduce
from nki.isa.tensor_scalar import tensor_scalar
from nki.isa.tensor_scalar_reduce import tensor_scalar_reduce
from nki.isa.tensor_tensor import tensor_tensor
from nki.isa.tensor_tensor_scan import tensor_tensor_scan
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
    "activation",
    "activation_reduce",
    "affine_select",
    "dge_mode",
    "dma_copy",
    "dma_engine",
    "engine",
    "get_nc_sub_version",
    "get_nc_version",
    "gpsimd_engine",
    "iota",
    "matmul_perf_mode",
    "memset",
    "nc_version",
    "nc_matmul",
    "nc_transpose",
    "oob_mode",
    "reciprocal",
    "reduce_cmd",
    "scalar_engine",
    "scalar_tensor_tensor",
    "tensor_copy",
    "tensor_engine",
    "tensor_reduce",
    "tensor_scalar",
    "tensor_scalar_reduce",
    "tensor_tensor",
    "tensor_tensor_scan",
    "unknown_engine",
    "vector_engine",
]
