"""Stand-ins for what the older releases and the official compiler have and this package has not.

Importing such a name works, so that files which only mention it can be loaded; using it raises the error that says
what to write instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from nki import errors
from nki.span import capture


class Replaced:
    """One such name. Calling or indexing it raises `RemovedApiError`; its attributes are stand-ins too."""

    def __init__(self, name: str, remedy: str) -> None:
        self.__name__ = self.__qualname__ = name
        self.__doc__ = f"Not available here; {remedy}."
        self._remedy = remedy

    def _used(self, how: str) -> errors.RemovedApiError:
        return errors.RemovedApiError(
            f"{self.__name__} is not available in this release of NKI",
            found=f"{self.__name__}{how}",
            remedy=self._remedy,
            span=capture(3),
        )

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise self._used("(...)")

    def __getitem__(self, _: Any) -> NoReturn:
        raise self._used("[...]")

    def __getattr__(self, attribute: str) -> Replaced:
        if attribute.startswith("_"):  # Python itself is asking
            raise AttributeError(attribute)
        return Replaced(f"{self.__name__}.{attribute}", self._remedy)

    def __repr__(self) -> str:
        return f"<{self.__name__}: {self._remedy}>"


def replaced(module: str, name: str, remedies: Mapping[str, str]) -> Replaced:
    """What a module's `__getattr__` returns for `name`: its stand-in, or Python's usual error."""
    remedy = remedies.get(name)
    if remedy is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    return Replaced(f"{module}.{name}", remedy)
