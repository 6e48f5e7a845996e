"""Which elements of an accumulating tensor have been written by accumulating instructions (semantics rules 60-63).

The Tensor engine adds to what it wrote before and overwrites what it did not, element by element, and the state
belongs to the tensor, not to the address. A write by another engine ends the group of the elements it touches: the
next accumulating write replaces them, which agrees with the accumulation groups of the hardware.
"""

from __future__ import annotations

import numpy as np

from nki.ir.program import Access, Buffer


def element_view(storage: np.ndarray, access: Access) -> np.ndarray:
    """A strided view of a flat array that has one entry per storage element of `access.dtype`."""
    step = storage.itemsize
    return np.ndarray(
        access.shape,
        storage.dtype,
        buffer=storage,
        offset=access.offset * step,
        strides=tuple(stride * step for stride in access.strides),
    )


class AccumulationGroups:
    """Masks of written elements, one per accumulating buffer; small because PSUM is."""

    def __init__(self) -> None:
        self._masks: dict[int, tuple[Buffer, np.ndarray]] = {}

    @property
    def active(self) -> bool:
        """Whether any tensor has an open group."""
        return bool(self._masks)

    def _mask(self, access: Access) -> np.ndarray:
        buffer = access.buffer
        entry = self._masks.get(id(buffer))
        if entry is None:
            entry = (buffer, np.zeros(buffer.nbytes // buffer.dtype.itemsize, np.bool_))
            self._masks[id(buffer)] = entry
        return element_view(entry[1], access)

    def state(self, access: Access) -> str:
        """`"fresh"`, `"written"` or `"mixed"`: how much of the window belongs to an open group."""
        if id(access.buffer) not in self._masks:
            return "fresh"
        view = self._mask(access)
        if not view.any():
            return "fresh"
        return "written" if view.all() else "mixed"

    def snapshot(self, access: Access) -> np.ndarray:
        """A copy of the mask of the window."""
        return self._mask(access).copy()

    def wrote(self, access: Access) -> None:
        """An accumulating instruction wrote the window."""
        self._mask(access)[...] = True

    def ended(self, access: Access) -> None:
        """Another instruction wrote the window."""
        if id(access.buffer) in self._masks:
            self._mask(access)[...] = False
