"""The machine: runs programs (values) and times them. It knows no mnemonic.

Reading order: `memory.py` (where bytes live), `views.py` (windows as NumPy arrays), `bind.py` (one instruction to
prebound calls), `plan.py` (a program to one list of calls), `execute.py` (running it), then `timing/` and `profile/`.
"""

from __future__ import annotations
