"""`nki_lib.embedding`, the typed front door of the operator. Importable without PyTorch."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from nki import errors

if TYPE_CHECKING:
    from torch import Tensor

_HAS_TORCH = find_spec("torch") is not None

if _HAS_TORCH:
    from nki_lib.common.kinds import check_whole
    from nki_lib.lookup.embedding.op import CHECKS, OPERATOR


def embedding(
    input: Tensor, weight: Tensor, *, padding_idx: int | None = None, scale: float | None = None
) -> Tensor:
    """weight[input], as `torch.nn.functional.embedding`, times scale if there is one.

    input: ids of any shape, int64 or int32, from 0 to V - 1.
    weight: the table, [V, H] in float32, bfloat16 or float16, V below 2^24.
    padding_idx: the row that gets no gradient; negative ones count from the end.
    scale: a number by which the rows are multiplied, in float32 and rounded once (Gemma: the root of H).

    Returns [*input.shape, H] in the dtype of weight, contiguous. Without scale the rows are copied bit by bit.
    Works in eager mode, under `torch.compile(fullgraph=True)` and with autograd: the gradient of weight is dense, the
    same bits every time; its sums are made in float32, id after id, and rounded once.
    Raises ShapeError, DtypeError or ArgumentError naming the argument, also for an id that is no row;
    MissingExtraError without PyTorch.

    Example: nki_lib.embedding(torch.tensor([[3, 1], [4, 1]]), torch.randn(5, 64))
    """
    if not _HAS_TORCH:
        raise errors.MissingExtraError(
            "nki_lib.embedding needs PyTorch, which is not installed",
            remedy="pip install 'open-nki[torch]', or launch the kernel on NumPy arrays: "
            "nki_lib.lookup.embedding.kernel",
        )
    CHECKS.required(input=input, weight=weight)
    CHECKS.places(input=input, weight=weight)
    check_whole(CHECKS, "padding_idx", padding_idx, optional=True)
    CHECKS.number("scale", scale)
    return OPERATOR(input, weight, padding_idx=padding_idx, scale=scale)
