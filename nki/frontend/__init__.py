"""The front end: how a Python function becomes something that can be staged.

`source` finds the syntax tree, `subset` says what the real compiler would refuse, `rewrite` sends the constructs whose
meaning may differ on a device through `hooks`, and `recorded` notes what the result depends on. CPython then runs the
rewritten function with symbolic tiles. Nothing here knows an instruction.
"""

from __future__ import annotations

from nki.frontend.callsite import call_site_name, call_site_span
from nki.frontend.hooks import Hooks, HostHooks
from nki.frontend.recorded import Dependencies
from nki.frontend.rewrite import rewrite, rewrite_kernel
from nki.frontend.source import FunctionSource, function_source
from nki.frontend.subset import SubsetDiagnostic, check_subset

__all__ = [
    "Dependencies",
    "FunctionSource",
    "Hooks",
    "HostHooks",
    "SubsetDiagnostic",
    "call_site_name",
    "call_site_span",
    "check_subset",
    "function_source",
    "rewrite",
    "rewrite_kernel",
]
