"""What a tensor does with values: show them, hand them out in eager mode, and take them in `t[key] = value`."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki import errors
from nki.ir import builder
from nki.ir.instruction import REGISTRY
from nki.ir.program import Access
from nki.span import capture

HOW_TO_SEE = "run nki.simulate(kernel, eager=True)(...) or set NKI_EAGER=1 to see values"


def values_of(access: Access) -> np.ndarray:
    """A copy of the elements; only known while a kernel runs eagerly."""
    current = builder.current()
    if current is None or current.read_values is None:
        raise errors.TruthValueError(
            "a tensor has no values while the kernel is staged",
            operand=access.describe(),
            found="staging without eager mode" if current else "no kernel is running",
            allowed="eager mode",
            remedy=f"{HOW_TO_SEE}, or nl.device_print inside the kernel",
            span=capture(3),
        )
    return np.array(current.read_values(access))


def show(access: Access, name: str) -> str:
    """The text of a tensor: what it is, and its values in eager mode."""
    title = f"NkiTensor({name + ': ' if name else ''}{list(access.shape)} {access.dtype} in {access.memory}"
    current = builder.current()
    if current is not None and current.read_values is not None:
        return f"{title})\n{np.array2string(np.asarray(current.read_values(access)), threshold=64)}"
    return f"{title}; {HOW_TO_SEE})"


def assign(view: Any, value: Any) -> None:
    """`t[key] = value`: a number fills the view, a tensor is copied into it."""
    access: Access = view.access
    source = getattr(value, "access", None)
    if value is view or (isinstance(source, Access) and source == access):
        return
    if isinstance(source, Access):
        on_chip = source.memory.on_chip and access.memory.on_chip
        mnemonic, arguments = "tensor_copy" if on_chip else "dma_copy", {"dst": view, "src": value}
    elif isinstance(value, (bool, int, float, np.number)):
        mnemonic, arguments = "memset", {"dst": view, "value": value}
    else:
        raise errors.ArgumentError(
            f"`t[...] = value` takes a tensor or a number, got {type(value).__name__}",
            operand=access.describe(),
            found=f"{value!r:.80}",
            allowed="a tensor of the same number of elements, or a number",
            remedy="nki.isa calls write their `dst` themselves: nisa.tensor_copy(dst=t, src=...)",
            span=capture(3),
        )
    builder.issue(REGISTRY[mnemonic], (), arguments)
