"""Registering `nki_lib.hf`, what its attention refuses, and the masks that it asks Transformers for."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("transformers", minversion="5")

from transformers import masking_utils  # noqa: E402
from transformers.modeling_utils import AttentionInterface  # noqa: E402

import nki_lib.hf  # noqa: E402
from nki import errors  # noqa: E402
from nki_lib.hf.attention import nki_attention  # noqa: E402
from nki_lib.hf.masks import nki_mask, same_function  # noqa: E402
from nki_lib.hf.pattern import Pattern, pattern_of  # noqa: E402
from tests.source_tree import ROOT  # noqa: E402

# ---- registering ----------------------------------------------------------------------------------------------------


def known() -> tuple[bool, bool]:
    return tuple("nki" in kind() for kind in (AttentionInterface, masking_utils.AttentionMaskInterface))


def test_register_and_unregister_can_be_repeated() -> None:
    for _ in range(2):
        nki_lib.hf.register()
        assert known() == (True, True)
    for _ in range(2):
        nki_lib.hf.unregister()
        assert known() == (False, False)


def test_old_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["transformers"]  # which Transformers replaces when it loads a model
    monkeypatch.setattr(module, "__version__", "4.57.1")
    with pytest.raises(errors.MissingExtraError, match=r"4\.57\.1") as caught:
        nki_lib.hf.register()
    assert "transformers >= 5" in str(caught.value) and "open-nki[hf]" in str(caught.value)
    assert known() == (False, False)


def test_without_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match=r"nki_lib\.hf needs transformers") as caught:
        nki_lib.hf.register()
    assert isinstance(caught.value, errors.MissingExtraError) and "open-nki[hf]" in str(caught.value)


@pytest.mark.slow
def test_without_torch() -> None:
    """The package can be imported; registering says what to install."""
    code = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else found(name, *rest)
sys.modules["torch"] = None
import nki_lib.hf
try:
    nki_lib.hf.register()
except ImportError as error:
    print(type(error).__name__, error)
"""
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.stdout.startswith("MissingExtraError nki_lib.hf needs torch"), run.stderr


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("dropout", 0.1, "attention_dropout"),
        ("output_attentions", True, "eager"),
        ("sinks", torch.zeros(1), "eager"),
    ],
)
def test_what_is_refused(name: str, value: Any, remedy: str) -> None:
    q = torch.zeros(1, 2, 3, 4)
    with pytest.raises(errors.ArgumentError, match=remedy) as caught:
        nki_attention(torch.nn.Module(), q, q, q, None, **{name: value})
    assert caught.value.operand == name


# ---- masks ----------------------------------------------------------------------------------------------------------


def seen(pattern: Pattern, batch: int, queries: int, keys: int) -> Any:
    """[B, Sq, Sk] by the definition of a pattern."""
    count = keys if pattern.keys is None else pattern.keys
    i, j = torch.arange(queries)[:, None] + count - queries, torch.arange(keys)
    result = (j < count).expand(batch, queries, keys)
    if pattern.causal:
        result = result & (j <= i)
    if pattern.window is not None:
        result = result & (j > i - pattern.window)
    if pattern.padding is not None:
        result = result & pattern.padding[:, None, :]
    return result


KINDS = ("causal", "window", "both ways")


@st.composite
def requests(draw: Any) -> tuple[str, dict[str, Any]]:
    """What Transformers asks for: a kind, and the arguments of a mask function."""
    q_length, past, room = draw(st.integers(1, 6)), draw(st.integers(0, 6)), draw(st.integers(0, 3))
    kv_offset = draw(st.integers(0, past))
    kind, window = draw(st.sampled_from(KINDS)), draw(st.integers(1, 8))
    function = {
        "causal": masking_utils.causal_mask_function,
        "window": masking_utils.sliding_window_causal_mask_function(window),
        "both ways": masking_utils.bidirectional_mask_function,
    }[kind]
    padding = None
    if draw(st.booleans()):
        length = past + q_length + (room if draw(st.booleans()) else 0)
        padding = torch.tensor(draw(st.lists(st.booleans(), min_size=2 * length, max_size=2 * length)))
        padding = padding.view(2, length)
    return kind, {
        "batch_size": 2,
        "q_length": q_length,
        "q_offset": past if draw(st.booleans()) else torch.tensor(past),
        "kv_length": past + q_length - kv_offset + room,
        "kv_offset": kv_offset,
        "mask_function": function,
        "attention_mask": padding,
        "local_size": window if kind == "window" else None,
        "allow_is_causal_skip": draw(st.booleans()) and kind != "both ways",
        "allow_is_bidirectional_skip": draw(st.booleans()) and kind == "both ways",
    }


@given(requests())
@settings(max_examples=150, deadline=None)
def test_masks_say_what_transformers_says(request: tuple[str, dict[str, Any]]) -> None:
    kind, arguments = request
    skips = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    offset = int(arguments["q_offset"])
    queries, keys = arguments["q_length"], arguments["kv_length"]
    expected = masking_utils.sdpa_mask(**accepted({**arguments, "q_offset": offset, **skips}))
    mask = nki_mask(**accepted(arguments))
    pattern = pattern_of(mask, kind != "both ways")
    assert pattern.mask is None
    assert torch.equal(seen(pattern, 2, queries, keys), expected.expand(2, 1, -1, -1)[:, 0])
    if mask is None or mask.dim() == 2:
        assert arguments["allow_is_causal_skip"] or arguments["allow_is_bidirectional_skip"]
    else:
        assert torch.equal(mask, expected)


def accepted(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments as this release of Transformers takes them: by positions in the first, by offset later."""
    if "cache_position" not in inspect.signature(masking_utils.sdpa_mask).parameters:
        return arguments
    length, offset = arguments["q_length"], int(arguments.get("q_offset", 0))
    rest = {name: value for name, value in arguments.items() if name not in ("q_length", "q_offset")}
    return {**rest, "cache_position": torch.arange(length) + offset}


def test_a_copy_of_a_mask_is_still_right() -> None:
    function = masking_utils.sliding_window_causal_mask_function(3)
    arguments = {"batch_size": 1, "q_length": 6, "kv_length": 6, "mask_function": function, "local_size": 3}
    mask = nki_mask(**accepted(arguments))
    assert pattern_of(mask, False).window == 3
    copy = pattern_of(mask.clone(), True)
    assert copy.window is None and not copy.causal and torch.equal(copy.mask, mask)


def test_unknown_functions_become_plain_masks() -> None:
    window = masking_utils.sliding_window_causal_mask_function
    assert same_function(window(5), window(5)) and not same_function(window(5), window(6))
    function = masking_utils.and_masks(window(5), lambda b, h, q, k: k != 2)
    arguments = accepted({"batch_size": 1, "q_length": 6, "kv_length": 6, "local_size": 5})
    pattern = pattern_of(nki_mask(mask_function=function, **arguments), True)
    assert torch.equal(pattern.mask, masking_utils.sdpa_mask(mask_function=function, **arguments))
