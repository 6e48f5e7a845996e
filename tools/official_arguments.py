"""What the official documentation's kernels are run on, and why some of them cannot be run.

Shapes are ours, small ones within what a kernel asserts; calls under one name are tried in turn, because pages share
names. Kernels without a row are tried on the shapes of `GUESSES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

import nki.language as nl
from nki.dtypes import as_dtype, cast_into


@dataclass(frozen=True)
class Tensor:
    """A tensor to make up: uniform values from `low` to `high`, the same ones every time."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    low: float = 0.0
    high: float = 1.0

    def make(self, seed: int) -> np.ndarray:
        """The array."""
        values = np.random.default_rng(seed).uniform(self.low, self.high, self.shape).astype(np.float32)
        made = np.empty(self.shape, as_dtype(self.dtype).numpy)
        cast_into(made, values)
        return made


@dataclass(frozen=True)
class Call:
    """Arguments by position and by name, and the number of cores."""

    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    cores: int = 1


def _call(*args: object, **kwargs: object) -> tuple[Call]:
    return (Call(args, kwargs),)


GUESSES = ((128, 512), (128, 128), (256, 1024), (4, 128, 512))

_TILE = Tensor((128, 512))
_ROWS = Tensor((512, 512))
_INDEX = Tensor((128, 1), "uint32", high=100)
_MATMUL = (Tensor((256, 256), "bfloat16"), Tensor((256, 1024), "bfloat16"))
_SINGLE = _call(Tensor((128, 64), "bfloat16"), Tensor((128, 512), "bfloat16"))
_BLOCKED = _call(*_MATMUL, TILES_IN_BLOCK_M=2, TILES_IN_BLOCK_N=2, TILES_IN_BLOCK_K=2)
_BLOCKS = _call(Tensor((8, 128, 512)))
_ONES_X4 = 1010580540  # four E5M2 ones in a word
_STATIONARY_MX = (
    Tensor((128, 128), "uint32", _ONES_X4, _ONES_X4),
    Tensor((16, 128), "uint8", 126, 128),
)
_MOVING_MX = (Tensor((128, 512), "uint32", _ONES_X4, _ONES_X4), Tensor((16, 512), "uint8", 126, 128))
_LARGE = (Tensor((512, 128), "bfloat16"), Tensor((512, 512), "bfloat16"))
_CHANNELS, _STATES = Tensor((1, 256, 512)), Tensor((1, 4, 512))
_MAMBA = _call(_CHANNELS, _CHANNELS, Tensor((256, 4), low=-1.0, high=0.0), _STATES, _STATES)

ARGUMENTS: dict[str, tuple[Call, ...]] = {
    "indirect_gather_kernel": _call(_TILE, _INDEX),
    "indirect_scatter_kernel": _call(_TILE, _INDEX, Tensor((128, 512))),
    "nc_matmul_accumulate_kernel": _call(Tensor((512, 128)), _ROWS),
    "gather_transpose_kernel": _call(Tensor((128, 128), "bfloat16"), _INDEX),
    "gather_transpose_2d_kernel": _call(Tensor((256, 128), "bfloat16"), Tensor((128, 2), "uint32", high=200)),
    "gather_transpose_4d_kernel": _call(
        Tensor((256, 2, 1, 64), "bfloat16"), Tensor((128, 2), "uint32", high=200)
    ),
    "tensor_exp_kernel_isa": (*_call(Tensor((4, 4096), "bfloat16")), *_call(Tensor((128, 128), "bfloat16"))),
    "example_kernel": _call(Tensor((512, 512), "float16")),
    "matrix_multiply_kernel": (*_call(*_MATMUL), *_SINGLE, *_BLOCKED),
    "nki_matmul_basic_": _SINGLE,
    "nki_matmul_tiled_": _call(*_MATMUL),
    "nki_matmul_hoist_load_": _call(*_MATMUL),
    "nki_matmul_block_free_dimension_": _call(*_MATMUL),
    "nki_matmul_fully_optimized_": _BLOCKED,
    "exp_func": _call(Tensor((4, 8, 128, 2, 512))),
    "sb_blocks": _BLOCKS,
    "sb_blocks_migrated": _BLOCKS,
    "sb_blocks_migrated_incorrect": _BLOCKS,
    "nki_matmul": _BLOCKED,
    "nonzero_with_count_kernel": _call(Tensor((1, 64))),
    "lnc_test": (Call((Tensor((2, 128, 512), low=1.0, high=2.0),), {}, cores=2),),
    "tensor_exp_kernel_": _call(Tensor((256, 512), low=1.0, high=2.0)),
    "scalar_dynamic_dma": _call(_ROWS),
    "indirect_scalar_dynamic_dma": _call(_ROWS),
    "tensor_split_kernel_": _call(Tensor((4, 5))),
    "tensor_maxpool_kernel_": _call(Tensor((2, 6, 6)), 2),
    "tensor_avgpool_kernel": _call(Tensor((2, 6, 6)), 2),
    "tensor_transpose2D_kernel_": _call(Tensor((2, 12)), (3, 4)),
    "mamba_v1": _MAMBA,
    "mamba_v2": _MAMBA,
    "mamba_v3": _MAMBA,
    "kernel_offline_quantized_mx_matmul": _call(*_STATIONARY_MX, *_MOVING_MX, nl.float8_e5m2_x4),
    "kernel_on_device_quantize_matmul_mx": _call(
        *_STATIONARY_MX, Tensor((128, 2048), "bfloat16"), nl.float8_e5m2_x4, nl.float8_e5m2_x4
    ),
    "kernel_copy_strided_quantize_matmul_mx": _call(*_LARGE, nl.float8_e5m2_x4),
    "kernel_copy_strided_quantize_matmul_mx_packed_scale": _call(*_LARGE, nl.float8_e5m2_x4),
}

_OLD_RESULT = (
    "ReturnError",
    "returns tensors in private HBM (`nl.hbm`), which the migration guide to 0.3.0 says no longer compiles",
)
_PAR_DIM = (
    "RemovedApiError",
    "shows the code before a migration: `nl.par_dim` and block dimensions are gone since 0.2.0",
)
_LIST = ("UserAssertionError", "asserts that a shape equals a list; shapes are tuples")
NO_PYTHON = "no complete Python"

REASONS = {
    "__init__:nonzero_with_count_kernel": _OLD_RESULT,
    "nki-aps:scalar_dynamic_dma": _LIST,
    "index:indirect_scalar_dynamic_dma": _LIST,
    "tiling-overview:tensor_kernel": (NO_PYTHON, "its docstring is indented less than its body"),
    "nki-compiler:kernel": (NO_PYTHON, "its body is a comment"),
    "index:my_function": (
        "NameError",
        "uses a result tensor and an annotation that the page does not define",
    ),
    "nki-language-guide:kernel": ("UserError: NameError", "calls functions that the page does not define"),
    "how-to-scheduling-apis:kernel": _OLD_RESULT,
    "how-to-scheduling-apis:scheduled": _OLD_RESULT,
    "how-to-scheduling-apis:loop": _OLD_RESULT,
    "kernel-optimization:matrix_multiply_kernel": _OLD_RESULT,
    "nki_simulator:my_kernel": (
        "UserError: TypeError: store()",
        "calls `nl.store` with one argument; its documented form takes `dst` and `value`",
    ),
    "index:exp_func": _PAR_DIM,
    "index:sb_blocks": _PAR_DIM,
}
"""Why a kernel cannot run, by `page:name`: how the refusal begins, so that no other is taken for it, and the reason."""

CHANGES = (
    (r"\bnl\.hbm\b", "nl.shared_hbm", "its results in shared HBM"),
    (r"\.shape == \[([\d, ]+)\]", r".shape == (\1)", "a tuple for the shape"),
)
"""Small changes (pattern, replacement, name) under which refused kernels are tried again, each alone."""
