"""Samples about classes: private names, all kinds of methods, `super`, dataclasses, enums, classes in functions."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field

from tests.frontend.sample_table import TILE, sample


class Base:
    """A class with private names and all kinds of methods."""

    scale = 2

    def __init__(self, n):
        self.__n = n
        self.log = []

    def __secret(self):
        return self.__n * self.scale

    def value(self):
        """The value."""
        total = 0
        while total < self.__secret():
            total += 1
        return total

    @classmethod
    def make(cls, n):
        return cls(n) if n else cls(1)

    @staticmethod
    def half(n):
        return n // 2 if n else None

    @property
    def secret(self):
        return self.__secret() or -1

    def __call__(self, x):
        return x + self.__n


class Derived(Base):
    """Zero-argument super in a method, in a closure and in a test."""

    def value(self):
        def inner():
            return super(Derived, self).value() + __class__.scale

        while super().value() > len(self.log):
            self.log.append(1)
        return super().value() + 100, inner(), self.log


@sample((3,), (0,))
def classes(n):
    d = Derived.make(n)
    return d.value(), Base.half(n), d.secret, d(10), Base.value(d), isinstance(d, Base) and d.half(4)


@dataclass
class Config:
    """A dataclass with a default factory."""

    n: int
    names: list[str] = field(default_factory=list)

    def __post_init__(self):
        if not self.names:
            self.names = [f"x{i}" for i in range(self.n)]

    def total(self, extra=TILE):
        return sum(len(name) for name in self.names) + extra


class Mode(enum.Enum):
    """An enumeration with a method."""

    fast = 1
    slow = 2

    def pick(self, a, b):
        return a if self is Mode.fast else b


@sample((2,), (0,))
def data(n):
    c = Config(n)
    mode = Mode.fast if c.names else Mode.slow
    return c, c.total(), c == Config(n), mode.pick("a", "b"), mode


@sample((3,))
def local_class(n):
    @dataclass
    class Point:
        x: int
        y: int = 2

        def norm(self):
            return self.x if self.x and not self.y else math.hypot(self.x, self.y)

        class Inner:
            def get(self, k=n):
                return k or "none"

    p = Point(n)
    return p.norm(), Point.Inner().get(), Point.norm.__qualname__, Point.__qualname__, repr(p)
