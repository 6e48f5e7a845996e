"""Models of Hugging Face Transformers 5 on the kernels of nki_lib: their attention, or all that is heavy in them.

`register` makes `attn_implementation="nki"` known, `use_kernels` swaps the modules of a model. This file can be
imported without PyTorch and without Transformers.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from nki import errors

if TYPE_CHECKING:
    from torch import nn

    from nki_lib.hf.swap import Report

__all__ = ["KINDS", "NAME", "register", "unregister", "use_kernels"]

NAME = "nki"
"""What to pass as `attn_implementation`."""

KINDS = ("attention", "moe", "router", "mamba", "mlp", "norm", "linear", "embedding", "loss")
"""What `use_kernels` can swap."""

_OLDEST = 5
_REMEDY = "pip install 'open-nki[hf]', which brings PyTorch and Transformers 5"


def register() -> None:
    """Make `attn_implementation="nki"` known to Transformers, for all models that use its attention interface.

    Prompts, training and encoders then run `nki_lib.flash_attention`, single new tokens on a cache
    `nki_lib.flash_decode`; grouped heads, sliding windows, soft-caps, sinks, position biases and padding included.
    Calling it again changes nothing. Errors: MissingExtraError without PyTorch or Transformers >= 5.

    Example:
        nki_lib.hf.register()
        model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="nki")
        model.set_attn_implementation("nki")  # a model that exists already
    """
    modeling, masking = _transformers("modeling_utils"), _transformers("masking_utils")
    modeling.AttentionInterface.register(NAME, import_module("nki_lib.hf.attention").nki_attention)
    masking.AttentionMaskInterface.register(NAME, import_module("nki_lib.hf.masks").nki_mask)


def use_kernels(model: nn.Module, kinds: Iterable[str] = KINDS) -> Report:
    """Let the modules of a model run our kernels, in place. The report says what was swapped, what was not, and why.

    model: of Transformers 5, or any module made of such parts. kinds: what to swap, all that is known by default.
    Every kind of module is tried on a few rows first, and left as it is unless ours computes the same. Classes, names
    and parameters stay, so checkpoints and optimizers see no change; `report.undo()` makes the model as it was.
    While nothing needs a gradient, the matrices of experts are kept a second time, in the layout of the kernels.
    Errors: ArgumentError naming the argument; MissingExtraError without PyTorch or Transformers >= 5.

    Example:
        report = nki_lib.hf.use_kernels(model)
        print(report)
        model.generate(ids)
        report.undo()
    """
    _transformers("modeling_utils")
    swap: ModuleType = import_module("nki_lib.hf.swap")
    report: Report = swap.swap(model, kinds)
    return report


def unregister() -> None:
    """Take `register` back, if it was called. Models that are set to "nki" can no longer run."""
    for module, name in (
        ("modeling_utils", "AttentionInterface"),
        ("masking_utils", "AttentionMaskInterface"),
    ):
        # The interface has no method for it: its own `del` only takes back what one instance overrides.
        getattr(_transformers(module), name)._global_mapping.pop(NAME, None)


def _transformers(module: str) -> ModuleType:
    """A module of Transformers, of a version that has the interfaces used here."""
    for package in ("torch", "transformers"):
        try:
            found = import_module(package)
        except ImportError as error:
            raise errors.MissingExtraError(
                f"nki_lib.hf needs {package}, which is not installed", remedy=_REMEDY
            ) from error
    if int(found.__version__.split(".")[0]) < _OLDEST:
        raise errors.MissingExtraError(
            "nki_lib.hf needs a newer Transformers",
            found=f"transformers {found.__version__}",
            allowed=f"transformers >= {_OLDEST}",
            remedy=_REMEDY,
        )
    return import_module(f"transformers.{module}")
