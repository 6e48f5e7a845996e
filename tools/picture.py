"""`python -m tools.picture`: take the picture of a profile page that README.md shows. Needs Chromium.

Elsewhere a picture is not compared: only its size is tested.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import nki
from nki_lib.attention.flash_attention.kernel import flash_attention
from tools.pages import ROOT

PICTURE = ROOT / "docs/img/profile.png"
_LENGTH, _DEPTH = 1024, 128
_WINDOW = "1400,1085"
_QUIET = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run")
_OFFLINE = ("--disable-background-networking", "--disable-component-update", "--disable-sync")


def main() -> int:
    """Profile causal FlashAttention on trn2 and photograph the page. Returns the exit code."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        print("no Chromium on the path", file=sys.stderr)
        return 1
    q = np.zeros((1, _LENGTH, _DEPTH), np.float32)
    profile = nki.profile(flash_attention, target="trn2")(q, q[0], q[0], _DEPTH**-0.5, True)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "profile.html"
        profile.to_html(page)
        options = (f"--user-data-dir={folder}/browser", f"--window-size={_WINDOW}", f"--screenshot={PICTURE}")
        subprocess.run(
            [browser, *_QUIET, *_OFFLINE, *options, page.as_uri()], check=True, capture_output=True
        )
    print(f"wrote {PICTURE.relative_to(ROOT).as_posix()}, {PICTURE.stat().st_size // 1024} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
