"""The builder of the official compiler: its vocabulary is the language's own, its compiling functions are not here."""

from __future__ import annotations

from nki import dtypes as dtypes
from nki import isa as isa
from nki.dtypes import bfloat16 as bfloat16
from nki.dtypes import float16 as float16
from nki.dtypes import float32 as float32
from nki.language import NkiTensor as Tensor
from nki.language import hbm, ndarray, psum, sbuf, shared_hbm
from nki.replaced import Replaced

__all__ = ["Tensor", "build_kernel", "compile_kernel", "hbm", "ndarray", "psum", "sbuf", "shared_hbm"]

_REMEDY = (
    "return the outputs from the function and run it: nki.simulate(function)(*inputs, **hyperparameters)"
)

build_kernel = Replaced("nki.compiler.kernel_builder.build_kernel", _REMEDY)
compile_kernel = Replaced("nki.compiler.kernel_builder.compile_kernel", _REMEDY)
