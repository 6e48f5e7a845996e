"""The subset of Python that NKI is: what cannot be staged here, and what only the real compiler refuses.

`check_subset` walks a function's tree and reports each construct that has a row in `subset_rules`, with its place and a
rewrite made of the user's own code where that is possible. Notes never stop a run.
"""

from __future__ import annotations

import ast
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nki.frontend.source import FunctionSource
from nki.frontend.subset_rules import RULES
from nki.frontend.transform import is_generator

_MAX_INTEGER = 2**32


@dataclass(frozen=True)
class SubsetDiagnostic:
    """One finding. `line` counts from 1, columns from 0; `severity` is `error` or `note`."""

    code: str
    severity: str
    message: str
    file: str
    line: int
    col: int
    end_col: int
    remedy: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.severity}[{self.code}]: {self.message}; {self.remedy}"


_Finding = tuple[str, ast.AST, str]
"""A rule's code, the node it is about, and a remedy that fits this place better than the general one (or "")."""


_known: weakref.WeakKeyDictionary[FunctionSource, dict[bool, list[SubsetDiagnostic]]] = (
    weakref.WeakKeyDictionary()
)


def check_subset(source: FunctionSource, *, kernel: bool = True) -> list[SubsetDiagnostic]:
    """All findings in one function, nested functions included, in the order of the text. Worked out once.

    `kernel` is False for a function that a kernel calls: what concerns only a kernel's own signature is then left out.
    """
    known = _known.setdefault(source, {})
    if kernel not in known:
        found = [*_signature(source.node, kernel), *_body(source.node)]
        reports = [_report(source, *finding) for finding in found]
        known[kernel] = sorted(reports, key=lambda report: (report.line, report.col, report.code))
    return list(known[kernel])


def _report(source: FunctionSource, code: str, node: ast.AST, remedy: str) -> SubsetDiagnostic:
    rule = RULES[code]
    line = getattr(node, "lineno", source.node.lineno)
    col = getattr(node, "col_offset", 0)
    end = getattr(node, "end_col_offset", None) if getattr(node, "end_lineno", None) == line else None
    end = end or max(col + 1, len(source.line(line).encode()))
    message = f"{rule.what}: {rule.why}"
    return SubsetDiagnostic(code, rule.severity, message, source.file, line, col, end, remedy or rule.remedy)


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef, kernel: bool) -> Iterator[_Finding]:
    if isinstance(node, ast.AsyncFunctionDef):
        yield "subset-async", node, ""
    elif is_generator(node):
        yield "subset-generator-kernel" if kernel else "subset-generator", node, ""
    if kernel:
        arguments = node.args
        for default in (*arguments.defaults, *filter(None, arguments.kw_defaults)):
            if isinstance(default, ast.List):
                yield "subset-list-argument", default, f"write `{_as_tuple(default)}`"
            elif isinstance(default, (ast.Dict, ast.Set)):
                yield "subset-mutable-default", default, ""


def _body(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[_Finding]:
    yield from _parameters(function.args)
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        check = _CHECKS.get(type(node))
        if check is not None:
            yield from check(node)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from _parameters(node.args)
        waiting.extend(child for child in ast.iter_child_nodes(node) if child not in _annotations(node))


def _annotations(node: ast.AST) -> tuple[object, ...]:
    return tuple(filter(None, (getattr(node, "annotation", None), getattr(node, "returns", None))))


def _parameters(arguments: ast.arguments) -> Iterator[_Finding]:
    if arguments.posonlyargs:
        yield "subset-positional-only", arguments.posonlyargs[0], ""
    if arguments.kwonlyargs:
        yield "subset-keyword-only", arguments.kwonlyargs[0], ""
    for star in (arguments.vararg, arguments.kwarg):
        if star is not None:
            yield "subset-star-parameters", star, ""


def _compare(node: ast.Compare) -> Iterator[_Finding]:
    if any(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
        ops: list[ast.cmpop] = [_BY_VALUE.get(type(op), type(op))() for op in node.ops]
        better = ast.Compare(left=node.left, ops=ops, comparators=node.comparators)
        yield "subset-is-operator", node, f"write `{ast.unparse(better)}`"


def _constant(node: ast.Constant) -> Iterator[_Finding]:
    value = node.value
    if isinstance(value, complex):
        yield "subset-complex", node, ""
    elif isinstance(value, bytes):
        yield "subset-bytes", node, ""
    elif isinstance(value, int) and value >= _MAX_INTEGER:
        yield "subset-wide-integer", node, ""


def _dict(node: ast.Dict) -> Iterator[_Finding]:
    for key in node.keys:
        if isinstance(key, ast.Constant) and not isinstance(key.value, str):
            yield "subset-dict-key", key, f"write `{str(key.value)!r}`"


def _call(node: ast.Call) -> Iterator[_Finding]:
    for argument in node.args:
        if isinstance(argument, ast.Starred):
            yield "subset-star-argument", argument, ""
    for keyword in node.keywords:
        if keyword.arg is None:
            yield "subset-star-argument", keyword.value, ""


def _with(node: ast.With) -> Iterator[_Finding]:
    for item in node.items:
        if not (isinstance(item.context_expr, ast.Call) and _last_name(item.context_expr.func) in _SCOPES):
            yield "subset-with", item.context_expr, ""


def _nested_function(node: ast.FunctionDef) -> Iterator[_Finding]:
    for decorator in node.decorator_list:
        if _last_name(decorator) not in _CLASS_DECORATORS:
            name = ast.unparse(decorator)
            yield (
                "subset-decorator",
                decorator,
                f"write `{node.name} = {name}({node.name})` after the function",
            )
    if is_generator(node):
        yield "subset-generator", node, ""


def _class(node: ast.ClassDef) -> Iterator[_Finding]:
    names = [_last_name(base) for base in node.bases]
    if len(names) != 1 or not names[0].endswith(("NKIObject", "Enum")):
        yield "subset-class-base", node, ""


def _simple(code: str) -> Callable[[ast.AST], Iterator[_Finding]]:
    def check(node: ast.AST) -> Iterator[_Finding]:
        yield code, node, ""

    return check


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        return _last_name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _as_tuple(node: ast.List) -> str:
    return ast.unparse(ast.Tuple(elts=node.elts, ctx=ast.Load()))


_BY_VALUE: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Is: ast.Eq, ast.IsNot: ast.NotEq}
_SCOPES = frozenset({"no_reorder"})
_CLASS_DECORATORS = frozenset({"staticmethod", "classmethod", "property"})
_CHECKS: dict[type[ast.AST], Callable[..., Iterator[_Finding]]] = {
    ast.Compare: _compare,
    ast.Constant: _constant,
    ast.Dict: _dict,
    ast.Call: _call,
    ast.With: _with,
    ast.FunctionDef: _nested_function,
    ast.ClassDef: _class,
    ast.AsyncFunctionDef: _simple("subset-async"),
    ast.AsyncFor: _simple("subset-async"),
    ast.AsyncWith: _simple("subset-async"),
    ast.Await: _simple("subset-async"),
    ast.Lambda: _simple("subset-lambda"),
    ast.ListComp: _simple("subset-comprehension"),
    ast.DictComp: _simple("subset-comprehension"),
    ast.SetComp: _simple("subset-comprehension"),
    ast.GeneratorExp: _simple("subset-generator"),
    ast.Set: _simple("subset-set"),
    ast.Try: _simple("subset-try"),
    ast.Delete: _simple("subset-del"),
    ast.Import: _simple("subset-import"),
    ast.ImportFrom: _simple("subset-import"),
    ast.Global: _simple("subset-global"),
    ast.Nonlocal: _simple("subset-nonlocal"),
    ast.NamedExpr: _simple("subset-walrus"),
    ast.Match: _simple("subset-match"),
}
if hasattr(ast, "TryStar"):
    _CHECKS[ast.TryStar] = _simple("subset-try")
