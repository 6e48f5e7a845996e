"""The data types under the name that annotations of kernel libraries use: `dtype: nki.dtype = nl.bfloat16`.

The module also stands for their class: it can be part of `X | Y`, and isinstance accepts it.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, Union

from nki.dtypes import (
    ALL,
    DType,
    as_dtype,
    bfloat16,
    bool_,
    float4_e2m1fn_x4,
    float8_e4m3,
    float8_e4m3fn,
    float8_e4m3fn_x4,
    float8_e5m2,
    float8_e5m2_x4,
    float8_e8m0fnu,
    float16,
    float32,
    int8,
    int16,
    int32,
    tfloat32,
    uint8,
    uint16,
    uint32,
)

__all__ = [
    "DType",
    "bfloat16",
    "bool_",
    "float4_e2m1fn_x4",
    "float8_e4m3",
    "float8_e4m3fn",
    "float8_e4m3fn_x4",
    "float8_e5m2",
    "float8_e5m2_x4",
    "float8_e8m0fnu",
    "float16",
    "float32",
    "int8",
    "int16",
    "int32",
    "tfloat32",
    "uint8",
    "uint16",
    "uint32",
]


class _ModuleAsClass(ModuleType):
    """A module that annotations may use as if it were the class `DType`."""

    def __call__(self, value: object) -> DType:
        return as_dtype(value)

    def __instancecheck__(self, value: object) -> bool:
        return value in ALL

    def __or__(self, other: Any) -> Any:
        return Union[DType, other]  # noqa: UP007

    __ror__ = __or__


sys.modules[__name__].__class__ = _ModuleAsClass
