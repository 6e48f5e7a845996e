"""`python -m benchmarks [--json] [name ...]`: print the table. One BLAS thread, set before NumPy is imported."""

from __future__ import annotations

import argparse
import json
import os
import sys

for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"


def main() -> int:
    """Measure the chosen rows. The exit code is 0 even if a bar is missed: this is a table, not a test."""
    from benchmarks.rows import ROWS

    parser = argparse.ArgumentParser(description="Speed of the interpreter as ratios against NumPy.")
    parser.add_argument("names", nargs="*", help=f"rows to measure (default all): {', '.join(ROWS)}")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(ROWS))
    if unknown:
        print(f"unknown rows: {', '.join(unknown)}; known: {', '.join(ROWS)}", file=sys.stderr)
        return 2
    rows = []
    for name in options.names or ROWS:
        row = ROWS[name]()
        rows.append(row)
        if not options.json:
            print(row.text(), flush=True)
    if options.json:
        print(json.dumps([row.record() for row in rows], indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
