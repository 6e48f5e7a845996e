"""The data types of `nki.language` as a module of their own."""

from __future__ import annotations

from nki.dtype import *  # noqa: F403
