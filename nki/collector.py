"""Pausing Python's cycle collector while a program is built.

Staging makes hundreds of thousands of small objects that all stay alive; the collector would walk them again and again
and find nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """No cycle collection inside the block, unless somebody switched it off or on meanwhile.

    What was made inside counts as old afterwards: else the next small allocation would have all of it walked at once.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        gc.enable()
