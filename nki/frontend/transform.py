"""The rewriting of a syntax tree: statements whose meaning may differ on a device go through hooks.

| written | becomes |
|---|---|
| `while test:` | `for __nki_go in __nki__.while_loop(lambda: test, line):`, or a `while` over a hooked test |
| `if test`, `a if test else b`, `assert test`, `not a`, `a and b`, ... | the test is `__nki__.test(test, kind, line)` |
| `for x in it`, also in comprehensions | `for x in __nki__.iterate(it, line)` |
| `break`, `continue`, `return` in such a loop | the same after `__nki__.leave(kind, lines of the loops)` |
| `f(x)` | `__nki__.call(f)(x)` |

Every new node takes the place of the one it wraps, so tracebacks, breakpoints and call sites stay where they were.
Nested functions, lambdas and the methods of nested classes are rewritten in place; decorators, annotations, class
bodies, generators and asynchronous functions stay as they are. `compiled` makes code of the tree, `hooks` is the
other side.
"""

from __future__ import annotations

import ast
from typing import Any, TypeVar, cast

HOOKS = "__nki__"
"""The name under which a rewritten function finds its hooks: a closure cell, never a global."""

_GO = "__nki_go"
_SELF_LOOKING = frozenset({"super", "locals", "vars", "dir", "eval", "exec", "globals"})
_LOOP_TEST = (
    ast.Name,
    ast.Attribute,
    ast.Subscript,
    ast.Slice,
    ast.Tuple,
    ast.Constant,
    ast.Compare,
    ast.BoolOp,
    ast.BinOp,
    ast.UnaryOp,
    ast.expr_context,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
)
"""What a `while` test may consist of to be moved into a lambda. A call could raise StopIteration, look at its own frame
(`super`, `locals`) or bind a name (walrus), which a lambda would change."""

_BOOLEAN_COMPARE = (ast.Is, ast.IsNot, ast.In, ast.NotIn)
_Function = TypeVar("_Function", ast.FunctionDef, ast.Lambda)


class Transformer(ast.NodeTransformer):
    """Rewrites the body of one function in place. `builtin_names` are the names that surely mean the built-in."""

    def __init__(self, builtin_names: frozenset[str]) -> None:
        self._builtin_names = builtin_names
        self._loops: list[
            int | None
        ] = []  # lines of the loops around a statement, None where surely Python's own

    def function(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Rewrite the body of `node` itself (not its decorators, defaults and annotations)."""
        outer, self._loops = self._loops, []
        node.body = self._statements(node.body)
        self._loops = outer
        return node

    # Scopes

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._defaults(node)
        return node if _yields(node.body) else self.function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        self._defaults(node)
        if not _yields([node.body]):
            node.body = self._expression(node.body)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        for item in node.body:
            if isinstance(item, (ast.ClassDef, ast.FunctionDef)):
                self.visit(item)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.target = self.visit(node.target)
        if node.value is not None:
            node.value = self._expression(node.value)
        return node

    # Loops

    def visit_For(self, node: ast.For) -> ast.AST:
        iterated = node.iter
        node.target, node.iter = self._expression(node.target), self._expression(node.iter)
        self._loop_bodies(node, None if self._is_builtin_call(iterated) else node.lineno)
        node.iter = _hook("iterate", [node.iter], node.iter, node.lineno)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        node.target = self.visit(node.target)
        node.iter = self._expression(node.iter)
        node.ifs = [self._test(test, "comprehension") for test in node.ifs]
        if not node.is_async:
            node.iter = _hook("iterate", [node.iter], node.iter, node.iter.lineno)
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        constant = isinstance(node.test, ast.Constant)
        movable = not constant and all(isinstance(part, _LOOP_TEST) for part in ast.walk(node.test))
        self._loop_bodies(node, node.lineno if movable else None)
        if constant:
            return node
        if not movable:
            node.test = self._test(node.test, "while")
            return node
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        test = ast.copy_location(ast.Lambda(args=nothing, body=self._expression(node.test)), node.test)
        target = ast.copy_location(ast.Name(id=_GO, ctx=ast.Store()), node.test)
        loop = ast.For(
            target=target,
            iter=_hook("while_loop", [test], node.test, node.lineno),
            body=node.body,
            orelse=node.orelse,
            type_comment=None,
        )
        return ast.copy_location(loop, node)

    def _loop_bodies(self, node: ast.For | ast.While, line: int | None) -> None:
        self._loops.append(line)
        node.body = self._statements(node.body)
        self._loops.pop()
        node.orelse = self._statements(node.orelse)

    def visit_Break(self, node: ast.Break) -> Any:
        return self._leaving(node, "break", self._loops[-1:])

    def visit_Continue(self, node: ast.Continue) -> Any:
        return self._leaving(node, "continue", self._loops[-1:])

    def visit_Return(self, node: ast.Return) -> Any:
        self.generic_visit(node)
        return self._leaving(node, "return", self._loops)

    def _leaving(self, node: ast.stmt, kind: str, loops: list[int | None]) -> ast.stmt | list[ast.stmt]:
        lines: list[ast.expr] = [ast.Constant(value=line) for line in loops if line is not None]
        if not lines:
            return node
        where = ast.copy_location(ast.Tuple(elts=lines, ctx=ast.Load()), node)
        for line in lines:
            ast.copy_location(line, node)
        asked = _hook("leave", [ast.Constant(value=kind), where], node)
        return [ast.copy_location(ast.Expr(value=asked), node), node]

    # Tests

    def visit_If(self, node: ast.If) -> ast.AST:
        node.test = self._test(node.test, "if")
        node.body, node.orelse = self._statements(node.body), self._statements(node.orelse)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        node.test = self._test(node.test, "conditional expression")
        node.body, node.orelse = self._expression(node.body), self._expression(node.orelse)
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        node.test = self._test(node.test, "assert")
        if node.msg is not None:
            node.msg = self._expression(node.msg)
        return node

    def visit_match_case(self, node: ast.match_case) -> ast.AST:
        if node.guard is not None:
            node.guard = self._test(node.guard, "case")
        node.body = self._statements(node.body)
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        is_not = isinstance(node.op, ast.Not)
        node.operand = self._test(node.operand, "not") if is_not else self._expression(node.operand)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        return self._bool_op(node, None)

    def _bool_op(self, node: ast.BoolOp, kind: str | None) -> ast.BoolOp:
        """All operands but the last are tested here; the last one is the value, tested only if the whole is."""
        word = "and" if isinstance(node.op, ast.And) else "or"
        *tested, last = node.values
        final = self._expression(last) if kind is None else self._test(last, kind)
        node.values = [*(self._test(value, word) for value in tested), final]
        return node

    def _test(self, node: ast.expr, kind: str) -> ast.expr:
        if isinstance(node, ast.Constant):
            return node
        if isinstance(node, ast.BoolOp):
            return self._bool_op(node, kind)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self._expression(node)
        if isinstance(node, ast.Compare) and all(isinstance(op, _BOOLEAN_COMPARE) for op in node.ops):
            return self._expression(node)
        line = node.lineno
        return _hook("test", [self._expression(node), ast.Constant(value=kind)], node, line)

    # Calls

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) else None
        if name is None or (name not in self._builtin_names and name not in _SELF_LOOKING):
            node.func = _hook("call", [node.func], node.func)
        return node

    # Pieces

    def _statements(self, body: list[ast.stmt]) -> list[ast.stmt]:
        done: list[ast.stmt] = []
        for statement in body:
            new = self.visit(statement)
            done += new if isinstance(new, list) else [new]
        return done

    def _is_builtin_call(self, node: ast.expr) -> bool:
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in self._builtin_names
        )

    def _expression(self, node: ast.expr) -> ast.expr:
        return cast(ast.expr, self.visit(node))

    def _defaults(self, node: _Function) -> None:
        arguments = node.args
        arguments.defaults = [self._expression(value) for value in arguments.defaults]
        arguments.kw_defaults = [value and self._expression(value) for value in arguments.kw_defaults]


def _yields(body: list[ast.stmt] | list[ast.expr]) -> bool:
    """True if these statements make their function a generator."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            return True
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            waiting.extend(ast.iter_child_nodes(node))
    return False


def is_generator(node: ast.FunctionDef) -> bool:
    """True if calling the function makes a generator."""
    return _yields(node.body)


def _hook(
    method: str, arguments: list[ast.expr], at: ast.expr | ast.stmt, line: int | None = None
) -> ast.Call:
    """`__nki__.method(*arguments[, line])`, standing where `at` stands."""
    attribute = ast.Attribute(value=ast.Name(id=HOOKS, ctx=ast.Load()), attr=method, ctx=ast.Load())
    values = arguments if line is None else [*arguments, ast.Constant(value=line)]
    call = ast.Call(func=attribute, args=values, keywords=[])
    for node in (call, attribute, attribute.value, *values):
        if not hasattr(node, "lineno"):
            ast.copy_location(node, at)
    return call
