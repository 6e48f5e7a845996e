"""Where functions stand in their files, and what the statements at call sites assign to."""

from __future__ import annotations

import ast
import functools
import linecache
import sys
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nki.frontend import FunctionSource, call_site_name, call_site_span, function_source
from nki.frontend.codes import CodeTable
from tests.frontend import samples

EXACT = sys.version_info >= (3, 11)


def source_of(fn: object) -> FunctionSource:
    source = function_source(fn)
    assert source is not None
    return source


def deco(fn: Any) -> Any:
    return fn


@deco
@functools.wraps(deco)
def decorated(
    a: int,
    b: str = """
left
""",
) -> int:
    return a


class Outer:
    class Inner:
        def __method(self) -> Callable[[], int]:
            def nested() -> int:
                return 1

            return nested

        method = __method


def test_positions_are_those_of_the_file() -> None:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    for fn in (decorated.__wrapped__, Outer.Inner.method, source_of, test_positions_are_those_of_the_file):
        source = source_of(fn)
        assert source.file == __file__
        assert source.first_line == fn.__code__.co_firstlineno
        assert source.lines == tuple(line + "\n" for line in lines[source.first_line - 1 : source.end_line])
        assert source.line(source.node.lineno) == lines[source.node.lineno - 1]
        assert source.line(source.first_line - 1) == source.line(source.end_line + 1) == ""
        assert lines[source.node.lineno - 1][source.node.col_offset :].startswith("def ")


def test_fresh_tree_is_equal_and_private() -> None:
    for fn, _ in samples.SAMPLES:
        if not hasattr(fn, "__wrapped__"):
            source = source_of(fn)
            fresh = source.fresh_tree()
            assert fresh is not source.node
            assert ast.dump(fresh, include_attributes=True) == ast.dump(source.node, include_attributes=True)


def test_methods_closures_and_private_names() -> None:
    inner = Outer.Inner()
    source = source_of(inner.method)
    assert (source.name, source.class_name) == ("__method", "Inner")
    assert source_of(inner.method()).class_name == "Inner"
    assert source_of(deco).class_name is None
    assert source_of(samples.decorated).name == "wrapper"  # the function itself, not what it wraps


def test_kept_per_code_object() -> None:
    assert function_source(source_of) is function_source(source_of)


@pytest.mark.parametrize("thing", [len, int, Outer, None, 3, functools.partial(deco), lambda x: x])
def test_no_source(thing: object) -> None:
    assert function_source(thing) is None


def test_exec_has_no_source_but_a_notebook_has() -> None:
    text = "def typed(x):\n    return [x]\n"
    for file, known in (("<string>", False), ("<ipython-input-1>", True), ("/no/such/file.py", False)):
        if known:
            linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        namespace: dict[str, Any] = {}
        exec(compile(text, file, "exec"), namespace)
        source = function_source(namespace["typed"])
        assert (source is not None) == known
        assert source is None or source.text == text


@pytest.mark.parametrize("text", ["def f(:\n", "\0", "", "x = 1\n", "def g(): pass\n"])
def test_unreadable_files(text: str, tmp_path: Any) -> None:
    path = tmp_path / "broken.py"
    namespace: dict[str, Any] = {}
    exec(compile("def f(): return 1", str(path), "exec"), namespace)
    path.write_text(text)
    assert function_source(namespace["f"]) is None


def test_a_reloaded_file_is_read_again(tmp_path: Any) -> None:
    path = tmp_path / "reloaded.py"
    found = []
    for body in ("return 1", "x = 2\n    return x"):
        path.write_text(f"def f():\n    {body}\n")
        namespace: dict[str, Any] = {}
        exec(compile(path.read_text(), str(path), "exec"), namespace)
        found.append(source_of(namespace["f"]).end_line)
    assert found == [2, 3]


def test_tables_forget_dead_code() -> None:
    table: CodeTable[int] = CodeTable()
    code = compile("1", "a", "eval")
    twin = compile("1", "b", "eval")
    table.put(code, 1)
    assert code == twin and code in table and twin not in table
    del code
    assert not table.values


class Site:
    """Looks at the call site of whoever makes one."""

    log: list[tuple[str | None, str | None]] = []

    def __init__(self, *_: Any, **__: Any) -> None:
        frame = sys._getframe(1)
        name = call_site_name(frame.f_code, frame.f_lasti, frame.f_lineno)
        span = call_site_span(frame.f_code, frame.f_lasti)
        text = None
        if span is not None and span[0] == span[1]:
            text = linecache.getline(frame.f_code.co_filename, span[0]).encode()[span[2] : span[3]].decode()
        self.log.append((name, text))

    def append(self, _: object) -> None:
        pass


def names() -> list[str | None]:
    found = [name for name, _ in Site.log]
    Site.log.clear()
    return found


def test_names_of_call_sites() -> None:
    Site.log.clear()
    tile = Site((1, 2), x=min(1, 2))
    typed: Site = Site()
    tile.inner = Site()  # type: ignore[attr-defined]
    long_one = Site(
        1,
        2,
    )
    assert names() == ["tile", "typed", "inner", "long_one"]
    tiles = [Site(), Site()]
    tiles.append(Site())
    nested = [Site(Site())]
    Site()
    first = second = Site()
    assert names() == [None] * 7
    assert typed and long_one and nested and first and second


@pytest.mark.skipif(not EXACT, reason="needs the position of the call")
def test_names_where_lines_do_not_tell() -> None:
    Site.log.clear()
    a, b = Site(), Site()
    outer = deco(Site())
    c = Site(Site())
    é, d = "é", Site()
    if e := Site():
        pass
    f = Site(); g = Site()  # noqa: E702  # fmt: skip
    assert names() == ["a", "b", None, None, "c", "d", "e", "f", "g"]
    assert all((a, b, outer, c, d, e, f, g, é))


@pytest.mark.skipif(not EXACT, reason="needs the position of the call")
def test_spans_of_call_sites() -> None:
    Site.log.clear()
    x = [Site(1), deco(Site(2, "ü"))]
    assert [text for _, text in Site.log] == ["Site(1)", 'Site(2, "ü")']
    assert x


def test_unknown_call_sites() -> None:
    code = compile("f()", "<string>", "eval")
    assert call_site_name(code, 0, 1) is None
    assert call_site_span(code, 10_000) is None
    assert call_site_span(code, -1) is None


def test_a_known_call_site_is_found_fast() -> None:
    code = deco.__code__
    call_site_name(code, 0, 1)
    assert min(timeit.repeat(lambda: call_site_name(code, 0, 1), number=1000)) < 2e-3
