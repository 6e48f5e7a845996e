"""`nisa`, as the recipes of this package call it.

Typed as `Any`: an instruction is declared as a class and exported as a function, and type checkers see the class.
"""

from __future__ import annotations

from typing import Any

from nki import isa

nisa: Any = isa
