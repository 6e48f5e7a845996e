"""The command line: `nki run|profile|ir|check|isa|doctor`. `main` is the console script."""

from __future__ import annotations

from nki.cli.main import main

__all__ = ["main"]
