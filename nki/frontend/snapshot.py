"""Values as they were: `freeze(value)` makes a token; equal tokens mean that a kernel cannot tell the values apart.

Tokens are compared when a cached program is looked up. They distinguish 1, 1.0 and True, treat NaN as equal to itself,
and copy what can change: containers, small arrays, objects of user classes, functions with their closures. Modules,
classes and objects of libraries without own state are compared by identity. What cannot be compared (a generator, an
open file, a large array, a torch tensor...) raises `Unfreezable`, which says why.
"""

from __future__ import annotations

import collections
import enum
import functools
import logging
import re
import struct
import types
from collections.abc import Callable
from pathlib import PurePath
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from nki.frontend.usercode import is_user_code, is_user_module

MAX_ARRAY_BYTES = 64 * 1024
"""Arrays above this are not copied into a snapshot."""

MAX_NODES = 10_000
"""Values with more parts than this are not followed."""

Token = Any
_LONG = 8
_ATOM_KINDS = frozenset({int, str, bool, bytes, type(None)})
_LRU = type(functools.lru_cache(lambda: None))
_BY_IDENTITY: tuple[type, ...] = (
    type,
    enum.Enum,
    types.ModuleType,
    types.BuiltinFunctionType,
    types.CodeType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.GenericAlias,
    types.UnionType,
    type(Ellipsis),
    type(NotImplemented),
    property,
    functools.cached_property,
    _LRU,
    np.ufunc,
    np.dtype,
    np.finfo,
    np.iinfo,
    type(np.sum),
    logging.Logger,
    logging.LoggerAdapter,
    re.Pattern,
)
_CONSTANT_MODULES = ("nki", "typing", "torch", "jax", "jaxlib", "ml_dtypes")
_MUTABLE_NAMES = ("Tensor", "Parameter", "Generator", "Module", "NkiTensor", "Array", "ArrayImpl")


class Unfreezable(Exception):
    """The value cannot be compared later. The message says what it is."""


def is_user_class(kind: type) -> bool:
    """True if `kind` was defined by user code."""
    return is_user_module(kind.__module__)


class Freezer:
    """Makes tokens. `keep` (if given) receives every object that a token refers to by its id, and must live as long as
    the token; `meet` is called with each function and each user class found on the way.
    """

    def __init__(self, keep: list[object] | None = None, meet: Callable[[Any], None] | None = None) -> None:
        self._keep = keep
        self._meet = meet
        self._path: dict[int, int] = {}
        self._left = MAX_NODES
        self.mutable = False
        """True once something was frozen that can change while staying the same object."""

    def freeze(self, value: Any) -> Token:
        """The token of `value`."""
        kind = type(value)
        if kind is int or kind is str or kind is bool or value is None or kind is bytes:
            return (kind, value)
        if kind is float:
            return (kind, struct.pack("<d", value))
        maker = _MAKERS.get(kind)
        if maker is None:
            maker = _MAKERS[kind] = _choose(kind)
        self._left -= 1
        self.mutable = self.mutable or maker not in _IMMUTABLE
        if self._left < 0:
            raise Unfreezable("a value with too many parts to compare on every call")
        key = id(value)
        if key in self._path:
            return ("again", self._path[key])
        self._path[key] = len(self._path)
        try:
            return maker(self, value)
        finally:
            del self._path[key]

    def _id(self, value: object) -> int:
        if self._keep is not None:
            self._keep.append(value)
        return id(value)

    def _identity(self, value: Any) -> Token:
        if self._meet is not None and (isinstance(value, type) or hasattr(value, "__wrapped__")):
            self._meet(value)
        return ("is", self._id(value))

    def _complex(self, value: complex) -> Token:
        return (complex, struct.pack("<dd", value.real, value.imag))

    def _sequence(self, value: Any) -> Token:
        if len(value) >= _LONG and _ATOM_KINDS.issuperset(map(type, value)):
            self._left -= len(value) // _LONG
            return (self._id(type(value)), tuple(map(type, value)), tuple(value))
        return (self._id(type(value)), *map(self.freeze, value))

    def _fixed_sequence(self, value: Any) -> Token:
        return self._sequence(value)

    def _deque(self, value: Any) -> Token:
        return (self._id(type(value)), value.maxlen, *map(self.freeze, value))

    def _bytearray(self, value: bytearray) -> Token:
        return (bytearray, bytes(value))

    def _set(self, value: Any) -> Token:
        return (self._id(type(value)), frozenset(map(self.freeze, value)))

    def _mapping(self, value: Any) -> Token:
        freeze = self.freeze
        return (self._id(type(value)), *[(freeze(key), freeze(item)) for key, item in value.items()])

    def _defaultdict(self, value: Any) -> Token:
        return (self.freeze(value.default_factory), self._mapping(value))

    def _namespace(self, value: types.SimpleNamespace) -> Token:
        return (types.SimpleNamespace, self._mapping(vars(value)))

    def _wrapper(self, value: Any) -> Token:
        return (type(value), self.freeze(value.__func__))

    def _scalar(self, value: Any) -> Token:
        return (type(value), value.dtype, value.tobytes())

    def _refuse(self, value: Any) -> Token:
        kind = type(value)
        raise Unfreezable(f"an object of class {kind.__module__}.{kind.__qualname__}")

    def _slice(self, value: Any) -> Token:
        return (type(value), self.freeze(value.start), self.freeze(value.stop), self.freeze(value.step))

    def _array(self, value: Any) -> Token:
        if value.dtype.hasobject:
            raise Unfreezable("an array of Python objects")
        if value.nbytes > MAX_ARRAY_BYTES:
            raise Unfreezable(f"an array of {value.nbytes} bytes (up to {MAX_ARRAY_BYTES} are compared)")
        return (type(value), value.dtype, value.shape, value.tobytes())

    def _path_name(self, value: Any) -> Token:
        return (type(value), str(value))

    def _function(self, value: Any) -> Token:
        if not is_user_code(value.__code__):
            return ("is", self._id(value))
        if self._meet is not None:
            self._meet(value)
        cells = tuple(self._cell(cell) for cell in value.__closure__ or ())
        facts = (value.__defaults__, value.__kwdefaults__)
        own = {name: item for name, item in value.__dict__.items() if name != "__wrapped__"}
        code, scope = self._id(value.__code__), self._id(value.__globals__)
        return (FunctionType, code, scope, self.freeze(facts), cells, self.freeze(own) if own else None)

    def _cell(self, cell: Any) -> Token:
        try:
            return self.freeze(cell.cell_contents)
        except ValueError:
            return "empty"

    def _method(self, value: Any) -> Token:
        return (MethodType, self.freeze(value.__func__), self.freeze(value.__self__))

    def _partial(self, value: Any) -> Token:
        return (
            functools.partial,
            self.freeze(value.func),
            self.freeze(value.args),
            self.freeze(value.keywords),
        )

    def _object(self, value: Any) -> Token:
        """An object of a user class: its class, its `__dict__`, its slots, and its value as a container."""
        kind = type(value)
        if self._meet is not None:
            self._meet(kind)
        parts: list[Token] = [self._id(kind)]
        for base in kind.__mro__:
            if base in _ATOMS:
                parts.append(base.__repr__(value))
            elif base in _CONTAINERS:
                parts.append(_MAKERS[base](self, value))
        for name in _slots(kind):
            parts.append(self.freeze(getattr(value, name)) if hasattr(value, name) else "unset")
        own = getattr(value, "__dict__", None)
        return (*parts, self._mapping(own) if own else None)


def attributes(value: object) -> dict[str, Any]:
    """What an object holds in its `__dict__` and its slots."""
    slots = {name: getattr(value, name) for name in _slots(type(value)) if hasattr(value, name)}
    return {**slots, **getattr(value, "__dict__", {})}


def _slots(kind: type) -> list[str]:
    names: list[str] = []
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        names += [slots] if isinstance(slots, str) else list(slots)
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def _choose(kind: type) -> Maker:
    """How values of a type met for the first time are frozen."""
    if issubclass(kind, np.ndarray):
        return Freezer._array
    if issubclass(kind, np.generic):
        return Freezer._scalar
    if kind is object or issubclass(kind, _BY_IDENTITY):
        return Freezer._identity
    if issubclass(kind, PurePath):
        return Freezer._path_name
    if not is_user_class(kind):
        if issubclass(kind, tuple):
            return Freezer._fixed_sequence
        if kind.__module__.split(".")[0] in _CONSTANT_MODULES and kind.__name__ not in _MUTABLE_NAMES:
            return Freezer._identity
    return Freezer._object if all(map(_has_visible_state, kind.__mro__)) else Freezer._refuse


def _has_visible_state(base: type) -> bool:
    """True if all that objects of this class hold is in `__dict__`, in slots or in a container we can read."""
    if base is object or base in _CONTAINERS or base in _ATOMS or is_user_class(base):
        return True
    if base.__name__ in _MUTABLE_NAMES:
        return False
    return base.__module__.split(".")[0] in ("abc", "typing", "collections", "nki")


Maker = Callable[[Freezer, Any], Token]
_ATOMS = (str, bytes, bytearray, int, float)
_CONTAINERS = (dict, list, tuple, set, frozenset, complex, collections.deque)
_MAKERS: dict[type, Maker] = {
    complex: Freezer._complex,
    bytearray: Freezer._bytearray,
    tuple: Freezer._fixed_sequence,
    list: Freezer._sequence,
    collections.deque: Freezer._deque,
    set: Freezer._set,
    frozenset: Freezer._set,
    dict: Freezer._mapping,
    collections.defaultdict: Freezer._defaultdict,
    types.MappingProxyType: Freezer._mapping,
    types.SimpleNamespace: Freezer._namespace,
    range: Freezer._slice,
    slice: Freezer._slice,
    FunctionType: Freezer._function,
    MethodType: Freezer._method,
    functools.partial: Freezer._partial,
    staticmethod: Freezer._wrapper,
    classmethod: Freezer._wrapper,
}
_IMMUTABLE = frozenset(
    {
        Freezer._complex,
        Freezer._fixed_sequence,
        Freezer._slice,
        Freezer._scalar,
        Freezer._identity,
        Freezer._path_name,
    }
)
