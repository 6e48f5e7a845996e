"""The official compiler's bindings to MLIR. The programs of this package are its own: see `nki.ir`."""

from __future__ import annotations

from nki.replaced import Replaced

_REMEDY = "kernel.ir(...) is the program of a kernel, str() of it its text, and nki.load_ir reads it back"

dialects = Replaced("nki.compiler._internal.dialects", _REMEDY)
ir = Replaced("nki.compiler._internal.ir", _REMEDY)
register_all_dialects = Replaced("nki.compiler._internal.register_all_dialects", _REMEDY)
