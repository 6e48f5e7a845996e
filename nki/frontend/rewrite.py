"""`rewrite(fn, hooks)`: the function that does what `fn` does, with device constructs going through `hooks`.

The compiled code is shared by all functions made from one `def`; each call binds it to one function object and one
hooks object: the same globals, defaults and closure cells, plus one cell for the hooks. Nothing is added to the
user's module, and what cannot be rewritten is returned as it is.
"""

from __future__ import annotations

from types import CellType, CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, TypeVar

from nki.frontend.compiled import rewritten, rewritten_code
from nki.frontend.transform import HOOKS
from nki.frontend.usercode import adopt

if TYPE_CHECKING:
    from nki.frontend.hooks import Hooks

F = TypeVar("F")


def rewrite_kernel(fn: F, hooks: Hooks) -> F:
    """`rewrite` for the root of a staging: if it is installed, its whole package counts as user code from now on."""
    function = fn.__func__ if isinstance(fn, MethodType) else fn
    if isinstance(function, FunctionType):
        adopt(function.__code__)
    return rewrite(fn, hooks)


def rewrite(fn: F, hooks: Hooks) -> F:
    """`fn` rewritten and bound to `hooks`; `fn` itself if there is nothing to do or it cannot be done.

    Rewriting what is rewritten only exchanges the hooks.
    """
    if isinstance(fn, MethodType):
        return MethodType(rewrite(fn.__func__, hooks), fn.__self__)  # type: ignore[return-value]
    if not isinstance(fn, FunctionType):
        return fn
    place = rewritten.get(fn.__code__)
    if place is None:
        code = rewritten_code(fn)
        return fn if code is None else _bind(code, fn, hooks)  # type: ignore[return-value]
    if place < 0 or (fn.__closure__ and fn.__closure__[place].cell_contents is hooks):
        return fn
    return _bind(fn.__code__, fn, hooks)  # type: ignore[return-value]


def _bind(code: CodeType, fn: FunctionType, hooks: Hooks) -> FunctionType:
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or ()))
    cells[HOOKS] = CellType(hooks)
    closure = tuple(cells[name] for name in code.co_freevars)
    new = FunctionType(code, fn.__globals__, fn.__name__, fn.__defaults__, closure)
    new.__kwdefaults__ = fn.__kwdefaults__
    new.__qualname__ = fn.__qualname__
    new.__module__ = fn.__module__
    new.__doc__ = fn.__doc__
    new.__annotations__ = fn.__annotations__
    if hasattr(fn, "__type_params__"):
        new.__type_params__ = fn.__type_params__  # type: ignore[attr-defined]
    new.__dict__.update(fn.__dict__)
    new.__wrapped__ = fn  # type: ignore[attr-defined]
    return new
