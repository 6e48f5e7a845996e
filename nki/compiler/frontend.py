"""Ways of the official compiler to read a kernel. Here there is one way, and nothing to choose."""

from __future__ import annotations

from nki.replaced import Replaced

_REMEDY = "kernel.ir(...) is the program of a kernel, kernel.check(...) what is wrong with it"

NKIFrontend = Replaced("nki.compiler.frontend.NKIFrontend", _REMEDY)
ParserFrontend = Replaced("nki.compiler.frontend.ParserFrontend", _REMEDY)
TracerFrontend = Replaced("nki.compiler.frontend.TracerFrontend", _REMEDY)
