"""`attn_implementation="nki"` for Hugging Face Transformers 5: `import nki_lib.hf; nki_lib.hf.register()`.

`masks.py` decides what a model's mask becomes, `pattern.py` is how it says so, `attention.py` computes. This file
can be imported without PyTorch and without Transformers; `register` needs both.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from nki import errors

__all__ = ["NAME", "register", "unregister"]

NAME = "nki"
"""What to pass as `attn_implementation`."""

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
