"""Checks that operators along one dimension share."""

from __future__ import annotations

import torch
from torch import Tensor

from nki import errors
from nki_lib.common.arguments import DTYPES, Checks
from nki_lib.common.kinds import check_flags, check_whole
from nki_lib.common.rows import name_of


class ReductionChecks(Checks):
    """The checks of an operator along a dimension; `dtypes` are those that it takes and returns."""

    def __init__(self, operator: str, dtypes: tuple[torch.dtype, ...] = DTYPES) -> None:
        super().__init__(operator)
        self.dtypes = dtypes
        self.allowed = ", ".join(name_of(dtype) for dtype in dtypes)

    def values(self, name: str, tensor: Tensor) -> None:
        """Its dtype."""
        if tensor.dtype not in self.dtypes:
            remedy = f"cast it first: {name}.to({self.nearest(tensor.dtype)})"
            raise self.error(errors.DtypeError, name, tensor, self.allowed, remedy)

    def nearest(self, dtype: torch.dtype) -> torch.dtype:
        """What to cast a tensor of a type that is not taken to."""
        whole = not dtype.is_floating_point and not dtype.is_complex
        return torch.int32 if whole and torch.int32 in self.dtypes else torch.float32

    def call(self, x: Tensor, *, whole: dict[str, object], flags: dict[str, object]) -> None:
        """What a front door asks before PyTorch's schema does: a tensor, and arguments of the right kinds."""
        self.required(x=x)
        self.places(x=x)
        for name, value in whole.items():
            check_whole(self, name, value)
        check_flags(self, **flags)

    def result(self, dtype: torch.dtype | None) -> None:
        """The dtype of the result."""
        if dtype is None or (isinstance(dtype, torch.dtype) and dtype in self.dtypes):
            return
        found = dtype if isinstance(dtype, torch.dtype) else repr(dtype)
        raise self.error(errors.DtypeError, "dtype", found, f"{self.allowed}, or None")

    def dimension(self, tensor: Tensor, dim: int) -> int:
        """The dimension, counted from the first; a tensor without dimensions has one, as in PyTorch."""
        rank = max(tensor.dim(), 1)
        if not -rank <= dim < rank:
            raise self.error(
                errors.ArgumentError, "dim", dim, f"{-rank} to {rank - 1}, as x has {rank} dimensions"
            )
        return dim % rank
