"""Rewritten functions do what the originals do: results, errors, line numbers, names, cells and globals."""

from __future__ import annotations

import copy
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from nki.frontend import HostHooks, rewrite, rewrite_kernel
from tests.frontend import sample_loops
from tests.frontend.samples import SAMPLES

CASES = [(fn, index) for fn, calls in SAMPLES for index in range(len(calls))]


def outcome(call: Callable[[], Any]) -> tuple[Any, ...]:
    """What a call does: its result, or its exception with the user frames it went through."""
    try:
        return ("returned", call())
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        places = [
            (f.name, f.lineno)
            for f in frames
            if Path(f.filename).name.startswith("sample") and f.name != "<lambda>"
        ]
        return ("raised", type(error), str(error), places)


@pytest.mark.parametrize(("fn", "index"), CASES, ids=lambda value: getattr(value, "__name__", value))
def test_same_outcome(fn: Any, index: int) -> None:
    calls = dict(SAMPLES)
    arguments = calls[fn][index]
    if fn is sample_loops.while_stop_iteration:
        arguments = (iter([1, 2, 0]),)
    fresh = copy.deepcopy if fn is not sample_loops.while_stop_iteration else copy.copy
    defaults = copy.deepcopy(fn.__defaults__)
    plain = outcome(lambda: fn(*fresh(arguments)))
    fn.__defaults__ = defaults
    if fn is sample_loops.while_stop_iteration:
        arguments = (iter([1, 2, 0]),)
    new = rewrite(fn, HostHooks())
    assert new is not fn
    assert outcome(lambda: new(*fresh(arguments))) == plain


@pytest.mark.parametrize("fn", [fn for fn, _ in SAMPLES], ids=lambda fn: fn.__name__)
def test_same_face(fn: Any) -> None:
    new = rewrite(fn, HostHooks())
    for name in ("__name__", "__qualname__", "__doc__", "__module__", "__annotations__", "__defaults__"):
        assert getattr(new, name) == getattr(fn, name)
    assert new.__kwdefaults__ is fn.__kwdefaults__ and new.__globals__ is fn.__globals__
    assert new.__wrapped__ is fn
    assert inspect.signature(new) == inspect.signature(fn)
    assert new.__code__.co_firstlineno == fn.__code__.co_firstlineno
    assert new.__code__.co_name == fn.__code__.co_name
    assert set(new.__code__.co_freevars) - {"__nki__"} == set(fn.__code__.co_freevars)
    if sys.version_info >= (3, 11):
        assert new.__code__.co_qualname == fn.__code__.co_qualname
    assert "__nki__" not in fn.__globals__


def test_every_line_keeps_its_number() -> None:
    for fn, _ in SAMPLES:
        lines = {line for _, _, line in fn.__code__.co_lines() if line}
        new = {line for _, _, line in rewrite(fn, HostHooks()).__code__.co_lines() if line}
        assert new == lines, fn.__name__


def test_cells_are_shared() -> None:
    count = 0

    def bump() -> None:
        nonlocal count
        count += 2 if not count else 1

    new = rewrite(bump, HostHooks())
    new()
    bump()
    assert count == 3
    assert isinstance(new, FunctionType) and bump.__closure__ and new.__closure__
    assert [cell for cell in new.__closure__ if cell is bump.__closure__[0]]
    assert len(new.__closure__) == 2


def test_decorators_are_not_applied_again() -> None:
    calls = []

    def note(fn: Any) -> Any:
        calls.append(fn)
        return fn

    @note
    @note
    def kernel(x: int) -> int:
        return x + 1 if x else 0

    new = rewrite(kernel, HostHooks())
    assert new is not kernel and new(1) == 2 and len(calls) == 2


def test_an_edited_file_is_not_used(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "edited_kernel.py"
    path.write_text("def kernel(x):\n    assert x\n    if x > 3:\n        return 'old'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import edited_kernel  # type: ignore[import-not-found]

    path.write_text("def kernel(x):\n    assert x\n    if x > 3:\n        return 'changed'\n")
    assert rewrite(edited_kernel.kernel, HostHooks()) is edited_kernel.kernel


def test_assertions_of_this_very_file_do_not_prevent_it() -> None:
    def kernel(x: list[int]) -> int:
        assert len(x) == 128 * 2 and x[0] == 1, f"wrong {x}"
        assert x
        return x[0] if x else 0

    new = rewrite(kernel, HostHooks())
    assert new is not kernel and new([1] * 256) == 1
    with pytest.raises(AssertionError, match="wrong"):
        new([2])


def test_installed_packages_are_adopted(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "kernels_dist.py").write_text(
        "def helper(x):\n    return x\ndef kernel(x):\n    return helper(x)\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    import kernels_dist  # type: ignore[import-not-found]

    hooks = HostHooks()
    assert hooks.call(kernels_dist.helper) is kernels_dist.helper
    assert rewrite_kernel(kernels_dist.kernel, hooks)(1) == 1
    assert hooks.reached == [kernels_dist.helper]


def test_the_original_is_returned_if_anything_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def kernel(x: int) -> int:
        return x

    monkeypatch.setattr("nki.frontend.compiled.Transformer", None)
    assert rewrite(kernel, HostHooks()) is kernel


def test_nothing_to_hook_nothing_rewritten() -> None:
    def plain(x: int) -> int:
        return x + len("a")

    assert rewrite(plain, HostHooks()) is plain
