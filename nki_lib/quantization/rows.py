"""Operators on rows with several results: the pieces and sizes of `common/rows.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from nki.torch import run_into
from nki_lib.common.rows import PIECE, bucket, padded


def run_on_rows(outs: Sequence[Tensor], kernel: Any, tensors: Sequence[Tensor], *rest: Any) -> None:
    """outs[i][r] = kernel(rows r of the tensors, *rest)[i], piece by piece."""
    for start in range(0, outs[0].shape[0], PIECE):
        targets = [out[start : start + PIECE] for out in outs]
        count = targets[0].shape[0]
        size = bucket(count)
        pieces = [padded(t[start : start + count], size) for t in tensors]
        if size == count:
            run_into(targets if len(outs) > 1 else targets[0], kernel, *pieces, *rest)
            continue
        results = kernel(*pieces, *rest)
        for target, result in zip(targets, results if len(outs) > 1 else [results]):
            target.copy_(result[:count])
