"""The narrow formats: how many bits an element has, what its largest value is, and which elements share a scale.

A format of `BLOCK` elements to a scale is one of the OCP Microscaling Formats (MX) 1.0: the scale is a power of two,
2^(floor(log2 m) - exponent) for the largest magnitude m of the block, stored as the byte e of 2^(e - 127)
(float8_e8m0fnu; 255 is NaN). In the other formats all elements of a vector share a float32.
"""

from __future__ import annotations

from dataclasses import dataclass

BLOCK = 32
"""Elements of an MX block: neighbours on the quantised axis."""

SCALE_BIAS = 127
"""The byte of the scale 1."""

SCALE_NAN = 255
"""The byte of a scale that is no number."""


@dataclass(frozen=True)
class Format:
    """One format.

    element: the type of an element, as NKI and PyTorch call it; None where two elements share a byte.
    largest: its largest magnitude. exponent: that of the largest power of two. blocks: whether it is an MX format.
    """

    name: str
    element: str | None
    largest: float
    exponent: int
    blocks: bool

    @property
    def packed(self) -> int:
        """Elements in a byte."""
        return 2 if self.element is None else 1

    def scales(self, count: int) -> int:
        """How many scales a vector of `count` elements has."""
        return count // BLOCK if self.blocks else 1


FORMATS = {
    made.name: made
    for made in (
        Format("float8_e4m3fn", "float8_e4m3fn", 448.0, 8, False),
        Format("float8_e5m2", "float8_e5m2", 57344.0, 15, False),
        Format("mxfp8_e4m3", "float8_e4m3fn", 448.0, 8, True),
        Format("mxfp8_e5m2", "float8_e5m2", 57344.0, 15, True),
        Format("mxfp4_e2m1", None, 6.0, 2, True),
    )
}
"""All formats by their names."""
