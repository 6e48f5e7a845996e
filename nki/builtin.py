"""An internal module of the official package that test suites replace by name. It has nothing to use."""

from __future__ import annotations
