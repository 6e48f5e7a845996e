"""One flag per element (or per byte, where views reinterpret) of a tensor: has it been written?"""

from __future__ import annotations

import numpy as np

from nki.ir.program import Access, Buffer


class WrittenMask:
    """Flags in storage order. Starts with one flag per element and goes down to bytes when a view needs it."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.granule = buffer.dtype.itemsize
        self._flags = np.zeros(buffer.nbytes // self.granule, np.bool_)

    def view(self, access: Access) -> np.ndarray:
        """The flags of a window, writable."""
        size = access.dtype.itemsize
        if size != self.granule and self.granule != 1:
            self._flags = np.repeat(self._flags, self.granule)
            self.granule = 1
        step = size // self.granule
        shape, strides = access.shape, tuple(s * step for s in access.strides)
        if step > 1:
            shape, strides = (*shape, step), (*strides, 1)
        return np.ndarray(shape, np.bool_, self._flags, access.offset * step, strides)

    def all(self) -> bool:
        """Whether the whole tensor has been written."""
        return bool(self._flags.all())

    def missing_region(self, access: Access | None = None) -> str:
        """The box around the unwritten elements, in the tensor's own indices: "[0:128, 7]"."""
        flags = self._flags
        if access is not None:
            outside = np.ones_like(flags)
            window = np.ndarray(flags.shape, np.bool_, outside)
            other = WrittenMask.__new__(WrittenMask)
            other.buffer, other.granule, other._flags = self.buffer, self.granule, window
            seen = self.view(access)
            other.view(access)[...] = seen
            flags = outside
        per_element = flags.reshape(*self.buffer.shape, -1).all(axis=-1)
        missing = np.argwhere(~per_element)
        if not len(missing):
            return "nothing"
        low, high = missing.min(axis=0), missing.max(axis=0)
        parts = [str(a) if a == b else f"{a}:{b + 1}" for a, b in zip(low.tolist(), high.tolist())]
        return "[" + ", ".join(parts) + "]"
