"""The loss of causal language models on `nki_lib.cross_entropy`, with the signature Transformers calls."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from nki_lib.loss.cross_entropy.api import cross_entropy


def causal_lm_loss(
    logits: Tensor,
    labels: Tensor | None,
    vocab_size: int,
    num_items_in_batch: Tensor | int | None = None,
    ignore_index: int = -100,
    shift_labels: Tensor | None = None,
    **_: Any,
) -> Tensor:
    """Mean cross entropy of the next token, or the sum divided by num_items_in_batch.

    Dimensions: logits [B, S, V], labels [B, S] or shift_labels [B, S], already moved by one -> a float32 scalar. The
    logits stay in their dtype; sums are in float32.
    """
    if shift_labels is None:
        assert labels is not None
        shift_labels = functional.pad(labels, (0, 1), value=ignore_index)[..., 1:]
    reduction = "mean" if num_items_in_batch is None else "sum"
    loss = cross_entropy(
        logits.reshape(-1, vocab_size),
        shift_labels.reshape(-1).to(logits.device),
        ignore_index=ignore_index,
        reduction=reduction,
    ).float()
    if num_items_in_batch is None:
        return loss
    return loss / (
        num_items_in_batch.to(loss.device) if torch.is_tensor(num_items_in_batch) else num_items_in_batch
    )
