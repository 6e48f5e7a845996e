"""The official package loads compiled kernels onto a chip here. Nothing is compiled, and no chip is needed."""

from __future__ import annotations

from nki.replaced import Replaced

SpikeModel = Replaced("nki.runtime.SpikeModel", "run the kernel with nki.simulate(kernel)(...)")
SpikeTensor = Replaced(
    "nki.runtime.SpikeTensor", "pass NumPy arrays or torch tensors to the kernel as they are"
)
