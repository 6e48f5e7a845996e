"""sin, cos and tan for any argument: whole turns are taken off first, as the Scalar engine's sine serves [-pi, pi].

The turn is subtracted in three parts (2*pi split so that turns * part is exact), which keeps about 24 bits for
arguments up to some ten thousand turns; beyond that float32 has no fraction of a turn left anyway.
"""

from __future__ import annotations

import math
from typing import Any

from nki import dtypes
from nki.language.binary import divide
from nki.language.instructions import nisa
from nki.language.operands import as_kind, fresh, named, require_tile
from nki.language.unary import activate
from nki.tensor import NkiTensor

_TURN_PARTS = (6.28125, 1.9340515136718750e-3, 2.0 * math.pi - 6.28125 - 1.9340515136718750e-3)
_MOST = 3.1415925  # the largest float32 below pi


def _within_one_turn(x: NkiTensor, ahead: float) -> NkiTensor:
    """x + ahead * 2 * pi, less whole turns: in [-pi, pi]."""
    turns = fresh(x.shape, dtypes.int32, name="turns")
    nisa.tensor_scalar(turns, x, op0="multiply", operand0=0.5 / math.pi, op1="add", operand1=ahead)
    rest = x
    for part in _TURN_PARTS:
        less = fresh(x.shape, dtypes.float32, name="angle")
        nisa.scalar_tensor_tensor(less, turns, op0="multiply", operand0=-part, op1="add", operand1=rest)
        rest = less
    if ahead:
        shifted = fresh(x.shape, dtypes.float32, name="angle")
        nisa.tensor_scalar(shifted, rest, op0="add", operand0=ahead * 2.0 * math.pi)
        rest = shifted
    angle = fresh(x.shape, dtypes.float32, name="angle")
    nisa.tensor_scalar(angle, rest, op0="maximum", operand0=-_MOST, op1="minimum", operand1=_MOST)
    return angle


def _sin(x: Any, dtype: Any = None) -> NkiTensor:
    tile = require_tile("sin", x)
    return activate("sin", _within_one_turn(tile, 0.0), as_kind(dtype, tile.dtype))


sin = named(_sin, "sin", "The sine, element by element, for any argument.", "sin")


def cos(x: Any, dtype: Any = None) -> NkiTensor:
    """The cosine, element by element."""
    tile = require_tile("cos", x)
    return activate("sin", _within_one_turn(tile, 0.25), as_kind(dtype, tile.dtype))


def tan(x: Any, dtype: Any = None) -> NkiTensor:
    """The tangent, element by element."""
    tile = require_tile("tan", x)
    kind = as_kind(dtype, tile.dtype)
    return divide(_sin(tile, dtypes.float32), cos(tile, dtypes.float32), kind)
