"""`nki.meta.tensor`: where release 0.2 moved the class of tensors to; `nl.NkiTensor` is its name now."""

from __future__ import annotations

from nki.tensor import NkiTensor

tensor = NkiTensor
