"""The official compiler's driver. Nothing is compiled here: a kernel is staged and run."""

from __future__ import annotations

from nki.replaced import Replaced

_REMEDY = (
    "run the kernel with nki.simulate(kernel)(...), time it with nki.profile, print it with kernel.ir(...)"
)

CompileOptions = Replaced("nki.compiler.ncc_driver.CompileOptions", _REMEDY)
CompiledKernel = Replaced("nki.compiler.ncc_driver.CompiledKernel", _REMEDY)
compile_mlir_to_neff = Replaced("nki.compiler.ncc_driver.compile_mlir_to_neff", _REMEDY)
