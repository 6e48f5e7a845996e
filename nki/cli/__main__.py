"""`python -m nki.cli` is the same as `nki`."""

from __future__ import annotations

import sys

from nki.cli.main import main

sys.exit(main())
