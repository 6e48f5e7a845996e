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


class _Mask:
    """Which elements of one buffer are written; one entry per `unit` bytes, the smallest dtype it was used with."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.unit = buffer.dtype.itemsize
        self.entries = np.zeros(buffer.nbytes // self.unit, np.bool_)

    def window(self, access: Access) -> np.ndarray:
        """A view of the entries of a window, with one more axis if an element has several."""
        size = access.dtype.itemsize
        if size < self.unit:
            self.entries = np.repeat(self.entries, self.unit // size)
            self.unit = size
        if size == self.unit:
            return element_view(self.entries, access)
        return np.ndarray(
            (*access.shape, size // self.unit),
            np.bool_,
            buffer=self.entries,
            offset=access.offset * size // self.unit,
            strides=(*(stride * size // self.unit for stride in access.strides), 1),
        )


class AccumulationGroups:
    """Masks of written elements, one per accumulating buffer; small because PSUM is.

    What loops on the device do to tensors from outside is not known here, nor which elements a window is whose place
    the device decides: such tensors are unsettled, and the machine keeps their masks while it runs.
    """

    def __init__(self) -> None:
        self._masks: dict[int, _Mask] = {}
        self._unsettled: dict[int, Buffer] = {}

    def unsettle(self, buffer: Buffer) -> None:
        """A loop on the device writes this tensor of the world outside, or an instruction an unknown part of it."""
        self._unsettled[id(buffer)] = buffer

    def is_settled(self, buffer: Buffer) -> bool:
        """Whether the mask of a tensor is what it will be at run time."""
        return id(buffer) not in self._unsettled

    @property
    def active(self) -> bool:
        """Whether any tensor has an open group."""
        return bool(self._masks)

    def _mask(self, access: Access) -> np.ndarray:
        buffer = access.buffer
        mask = self._masks.get(id(buffer))
        if mask is None:
            mask = self._masks[id(buffer)] = _Mask(buffer)
        return mask.window(access)

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
        view = self._mask(access)
        return view.copy() if view.ndim == len(access.shape) else np.asarray(view.all(axis=-1))

    def wrote(self, access: Access) -> None:
        """An accumulating instruction wrote the window."""
        self._mask(access)[...] = True

    def ended(self, access: Access) -> None:
        """Another instruction wrote the window."""
        if id(access.buffer) not in self._masks:
            return
        if access.dynamic is not None:
            self.unsettle(access.buffer)
        else:
            self._mask(access)[...] = False
