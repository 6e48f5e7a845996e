"""`nl.device_print`: show a tensor while the kernel runs.

It is an instruction like those of `nki.isa`, with the effect of printing: it keeps its place among the instructions
that touch the tensor, and the machine runs it in every execution.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

import numpy as np

from nki.dtypes import as_dtype
from nki.enums import dge_mode
from nki.enums import engine as Engine
from nki.ir.cost import Phase, Transfer
from nki.ir.effects import PRINT
from nki.ir.instruction import Instruction, Steps
from nki.ir.operands import ANY_DTYPE, HBM_OR_SBUF, TEXT, attribute, source
from nki.ir.program import Shape
from nki.isa.export import instruction
from nki.target import Target

FOLDER: Final = "NEURON_RT_DEBUG_OUTPUT_DIR"


@instruction
class device_print(Instruction):
    """Print `print_prefix`, the tensor's shape, dtype and place in the source, and its values.

    The prefix is a string known while staging. Tensors in SBUF or HBM can be printed. On hardware the tensor is copied
    out by DMA, which is what it costs here. Sources: nki.language.device_print; semantics rule 150.
    """

    engines = (Engine.sync,)
    effects = (PRINT,)
    limits = {}
    layout = "declared"

    print_prefix = attribute(TEXT, doc="what to print before the tensor")
    tensor = source("E", HBM_OR_SBUF, ANY_DTYPE, doc="the tensor to print")

    def compute(self) -> str:
        return "raw"

    def array_shapes(self) -> dict[str, Shape]:
        return {"tensor": self.tensor.shape}

    def semantics(self, a: Any) -> Steps:
        access = self.tensor
        yield show, (f"{self.print_prefix} {list(access.shape)} {access.dtype} ({self.span})", a.tensor)
        yield dump, (self.print_prefix, access.buffer.core, a.tensor)

    def cost(self, target: Target) -> tuple[Phase, ...]:
        rows = self.tensor.shape[0]
        row_bytes = self.tensor.size // rows * self.tensor.dtype.itemsize
        return (Phase(0, kind="transfer", transfer=Transfer(rows, row_bytes, dge_mode.none)),)


def show(title: str, values: np.ndarray) -> None:
    """Print a title and values, at once."""
    print(f"{title}\n{np.array2string(values, threshold=1000)}", flush=True)


def dump(prefix: str, core: int, values: np.ndarray) -> None:
    """Save values as <folder>/<prefix>/core_<core>/<iteration>/tensor.npy if NEURON_RT_DEBUG_OUTPUT_DIR names a folder.

    Narrow floats are saved as float32, which every reader of the format knows.
    """
    folder = os.environ.get(FOLDER)
    if not folder:
        return
    place = Path(folder) / re.sub(r"[^\w.-]+", "_", prefix) / f"core_{core}"
    place /= str(len(list(place.iterdir())) if place.exists() else 0)
    place.mkdir(parents=True)
    np.save(place / "tensor.npy", values.astype(np.float32) if as_dtype(values.dtype).is_float else values)
