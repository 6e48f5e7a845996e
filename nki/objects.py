"""`NKIObject`: the base class of user classes that take part in kernels (semantics rule 146).

Subclasses may be plain, `@dataclass` or `@dataclass(frozen=True)`. A plain one gets a constructor made from its
annotations; all compare by class and fields, and all can be hashed, so they may be part of the key of a cached kernel.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

from nki import errors
from nki.span import capture


class NKIObject:
    """Base of classes used in kernels: constructor from annotations, `__post_init__`, structural equality and hash."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _fill(self, args, kwargs)
        self.__post_init__()

    def __post_init__(self) -> None:
        """Runs after the fields are set; subclasses override it."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = vars(cls)
        if own.get("__hash__") is None:
            # Stated in the class itself, because `@dataclass` drops a hash that is only inherited.
            inherited = NKIObject.__hash__ if "__eq__" in own else cls.__mro__[1].__hash__
            cls.__hash__ = inherited  # type: ignore[method-assign, assignment]

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other):
            return NotImplemented
        return _alike(vars(self), vars(other))

    def __hash__(self) -> int:
        return hash((type(self), _hashable(vars(self))))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__qualname__}({fields})"


def _fill(self: NKIObject, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """What the generated constructor does: bind arguments to annotated fields; a field without default is `None`."""
    cls = type(self)
    names = _field_names(cls)
    if len(args) > len(names):
        raise errors.ArgumentError(
            f"{cls.__name__}() takes {len(names)} arguments but {len(args)} were given",
            found=f"{len(args)} positional arguments",
            allowed=f"{cls.__name__}({', '.join(names)})",
            remedy="annotate the fields of the class (`x: int`) or define __init__",
            span=capture(2),
        )
    given = dict(zip(names, args))
    for name, value in kwargs.items():
        if name in given or (names and name not in names and not hasattr(cls, name)):
            twice = name in given
            raise errors.UnknownKeywordError(
                f"{cls.__name__}() got {'multiple values for' if twice else 'an unexpected keyword'} argument '{name}'",
                operand=name,
                found=f"{name}=...",
                allowed=f"{cls.__name__}({', '.join(names)})",
                remedy=f"pass `{name}` once" if twice else f"remove `{name}=` or declare the field",
                span=capture(2),
            )
        given[name] = value
    for name in names:
        object.__setattr__(self, name, given.pop(name) if name in given else _default(cls, name))
    for name, value in given.items():
        object.__setattr__(self, name, value)


def _field_names(cls: type) -> tuple[str, ...]:
    """Annotated fields, those of base classes first, without class variables."""
    names: dict[str, None] = {}
    for base in reversed(cls.__mro__):
        for name, annotation in getattr(base, "__annotations__", {}).items() if base is not object else ():
            if "ClassVar" not in str(annotation):
                names[name] = None
    return tuple(names)


def _default(cls: type, name: str) -> Any:
    value = getattr(cls, name, None)
    if isinstance(value, dataclasses.Field):
        if value.default_factory is not dataclasses.MISSING:
            return value.default_factory()
        return None if value.default is dataclasses.MISSING else value.default
    return copy.copy(value) if isinstance(value, (list, dict, set)) else value


def _alike(a: Any, b: Any) -> bool:
    """Equality that also works for arrays inside the fields."""
    if a is b:
        return True
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_alike(value, b[key]) for key, value in a.items())
    if isinstance(a, (list, tuple)) and type(a) is type(b):
        return len(a) == len(b) and all(_alike(x, y) for x, y in zip(a, b))
    if hasattr(a, "shape") and hasattr(b, "shape") and hasattr(a, "tobytes") and hasattr(b, "tobytes"):
        return bool(a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes())
    return bool(a == b)


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(
            (key, _hashable(item)) for key, item in sorted(value.items(), key=lambda entry: str(entry[0]))
        )
    if isinstance(value, (list, tuple)):
        return tuple(_hashable(item) for item in value)
    if isinstance(value, (set, frozenset)):
        return frozenset(_hashable(item) for item in value)
    if hasattr(value, "tobytes") and hasattr(value, "shape"):
        return (tuple(value.shape), str(value.dtype), value.tobytes())
    return value
