"""From a function's source to rewritten code: parse, transform, compile, and put the function's own face on it.

The rewritten function is compiled inside a factory that is never run: its parameters only make the free variables
free, and a class around it makes private names mean the same. The code object is then taken out of the factory and
given back its name. All of it is done once per code object; `rewrite` makes functions of it.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import sys
from types import CodeType, FunctionType

from nki.frontend.codes import CodeTable, nested_codes
from nki.frontend.source import FunctionSource, function_source
from nki.frontend.transform import HOOKS, Transformer, is_generator

_FACTORY = "__nki_factory__"
_FUNCTION = "__nki_function__"
_FUTURES = 0
for _feature in __future__.all_feature_names:
    _FUTURES |= getattr(__future__, _feature).compiler_flag
_NESTED = 0x10

rewritten: CodeTable[int] = CodeTable()
"""The code objects this module has made, nested ones included, with the index of the hooks among their free
variables (-1 if they use none)."""

_compiled: CodeTable[CodeType | None] = CodeTable()


def rewritten_code(fn: FunctionType) -> CodeType | None:
    """The rewritten code of `fn`, or None if it must run as it is. Never an exception."""
    code = fn.__code__
    if code in _compiled:
        return _compiled.get(code)
    try:
        result = _rewrite(fn)
    except Exception:  # a kernel that Python can run is never broken by the attempt
        result = None
    return _compiled.put(code, result)


def _rewrite(fn: FunctionType) -> CodeType | None:
    original = fn.__code__
    source = function_source(fn)
    if source is None or not isinstance(source.node, ast.FunctionDef) or is_generator(source.node):
        return None
    if not _is_current(source, fn):
        return None
    tree = source.fresh_tree()
    assert isinstance(tree, ast.FunctionDef)
    Transformer(_builtin_names(fn)).function(tree)
    code = _compile(tree, source, fn)
    if HOOKS not in code.co_freevars or set(code.co_freevars) - {HOOKS} != set(original.co_freevars):
        return None  # nothing to hook, or a name that does not mean what it meant
    for nested in nested_codes(code):
        free = nested.co_freevars
        rewritten.put(nested, free.index(HOOKS) if HOOKS in free else -1)
    return code


def _compile(tree: ast.FunctionDef, source: FunctionSource, fn: FunctionType) -> CodeType:
    """The code object of `tree`, as if it had been compiled where it stands in its file."""
    original = fn.__code__
    _strip(tree)
    free = [name for name in original.co_freevars if name != "__class__" or source.class_name is None]
    arguments = ast.arguments(
        posonlyargs=[],
        args=[ast.arg(arg=name) for name in (HOOKS, *free)],
        kwonlyargs=[],
        kw_defaults=[],
        defaults=[],
    )
    module = ast.Module(body=[_factory(tree, arguments, source.class_name)], type_ignores=[])
    flags = original.co_flags & _FUTURES
    whole = compile(module, original.co_filename, "exec", flags=flags, dont_inherit=True)
    found = next(code for code in nested_codes(whole) if code.co_name == _FUNCTION)
    temporary = _temporary_qualname(found, source.class_name, original.co_freevars)
    return _relabel(found, temporary, original, fn)


def _factory(tree: ast.FunctionDef, arguments: ast.arguments, class_name: str | None) -> ast.FunctionDef:
    """The function around `tree`, with a class of the right name in between if private names need one."""
    body: list[ast.stmt] = [tree]
    if class_name is not None:
        owner = ast.ClassDef(name=class_name, bases=[], keywords=[], body=[tree], decorator_list=[])
        visible = class_name in (argument.arg for argument in arguments.args)
        body = [owner] if visible else [ast.Global(names=[class_name]), owner]
    factory = ast.FunctionDef(name=_FACTORY, args=arguments, body=body, decorator_list=[])
    for node in (factory, *body, *arguments.args):
        if sys.version_info >= (3, 12) and isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            node.type_params = []
        if node is not tree:
            ast.copy_location(node, tree)
    return factory


def _strip(tree: ast.FunctionDef) -> None:
    """Remove what belongs to the definition and not to the code. A placeholder keeps the decorator's line."""
    if tree.decorator_list:
        first = tree.decorator_list[0]
        tree.decorator_list = [ast.copy_location(ast.Constant(value=None), first)]
    tree.name = _FUNCTION
    tree.returns = None
    if sys.version_info >= (3, 12):
        tree.type_params = []
    arguments = tree.args
    every = [
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        arguments.vararg,
        arguments.kwarg,
    ]
    for argument in every:
        if argument is not None:
            argument.annotation = None
    arguments.defaults = [ast.copy_location(ast.Constant(value=None), value) for value in arguments.defaults]
    arguments.kw_defaults = [
        value and ast.copy_location(ast.Constant(value=None), value) for value in arguments.kw_defaults
    ]


def _temporary_qualname(code: CodeType, class_name: str | None, free: tuple[str, ...]) -> str:
    """The qualified name that the factory gave to `code`. Before Python 3.11 it has to be worked out."""
    inside = _FUNCTION if class_name is None else f"{class_name}.{_FUNCTION}"
    is_global = class_name is not None and class_name not in free
    return str(getattr(code, "co_qualname", inside if is_global else f"{_FACTORY}.<locals>.{inside}"))


def _relabel(code: CodeType, temporary: str, original: CodeType, fn: FunctionType) -> CodeType:
    """`code` under the name of the original, and the names of everything nested in it likewise."""
    real = str(getattr(original, "co_qualname", fn.__qualname__))
    renamed = _requalify(code, temporary, real)
    flags = renamed.co_flags & ~_NESTED | original.co_flags & _NESTED
    return renamed.replace(co_name=original.co_name, co_flags=flags)


def _requalify(code: CodeType, old: str, new: str) -> CodeType:
    def constant(value: object) -> object:
        if isinstance(value, CodeType):
            return _requalify(value, old, new)
        if isinstance(value, str) and value.startswith(old + "."):
            return new + value[len(old) :]
        return value

    consts = tuple(constant(value) for value in code.co_consts)
    if sys.version_info < (3, 11):
        return code.replace(co_consts=consts)
    qualname = code.co_qualname
    return code.replace(co_consts=consts, co_qualname=new + qualname[len(old) :])


def _is_current(source: FunctionSource, fn: FunctionType) -> bool:
    """True if the file still holds what `fn` was compiled from. It may have been edited since it was imported.

    An import hook may have changed the function on the way (pytest does so with `assert`), so where the code is not
    equal, the names and constants of everything but the assertions must at least occur in it.
    """
    plain = source.fresh_tree()
    assert isinstance(plain, ast.FunctionDef)
    if _compile(plain, source, fn) == fn.__code__:
        return True
    reduced = source.fresh_tree()
    assert isinstance(reduced, ast.FunctionDef)
    code, present = _compile(_NoAsserts().visit(reduced), source, fn), fn.__code__
    same_shape = code.co_varnames[: _arity(code)] == present.co_varnames[: _arity(present)]
    same_shape = same_shape and set(code.co_freevars) == set(present.co_freevars)
    return same_shape and _words(code) <= _words(present)


class _NoAsserts(ast.NodeTransformer):
    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return ast.copy_location(ast.Pass(), node)


def _arity(code: CodeType) -> int:
    stars = bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    return code.co_argcount + code.co_kwonlyargcount + stars


def _words(code: CodeType) -> set[object]:
    words: set[object] = set()
    for nested in nested_codes(code):
        words.update(nested.co_names)
        words.update(
            (type(c), c) for c in nested.co_consts if not isinstance(c, (CodeType, tuple, frozenset))
        )
    return words


def _builtin_names(fn: FunctionType) -> frozenset[str]:
    """The names that mean the built-in wherever they stand in `fn`."""
    bound = set(fn.__globals__)
    for code in nested_codes(fn.__code__):
        bound.update(code.co_varnames, code.co_cellvars, code.co_freevars)
    return frozenset(vars(builtins)) - bound - {"breakpoint"}
