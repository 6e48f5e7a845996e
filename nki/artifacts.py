"""`NKI_ARTIFACTS_DIR`: the folder that receives what is made of kernels. Here that is the text of each program."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from nki.ir.program import Program

FOLDER = "NKI_ARTIFACTS_DIR"


def keep(program: Program) -> None:
    """Write a finished program to `<kernel>-<digest of its text>.nkir`, if the environment names a folder."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return
    text = str(program)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    name = re.sub(r"[^\w.-]+", "_", program.name)
    Path(folder).mkdir(parents=True, exist_ok=True)
    (Path(folder) / f"{name}-{digest}.nkir").write_text(text, encoding="utf-8")
