"""`python -m benchmarks.accuracy [id ...]`: predicted and published times, their errors, the order within traces."""

from __future__ import annotations

import argparse
import json
import os
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"


def main() -> int:
    """Print the table, or write the page."""
    from benchmarks.accuracy.kernels import register
    from benchmarks.accuracy.measure import is_made, measure
    from benchmarks.accuracy.page import page
    from benchmarks.accuracy.rows import published
    from benchmarks.accuracy.sensitivity import sensitivities

    parser = argparse.ArgumentParser(description="Predicted times against published ones.")
    parser.add_argument("ids", nargs="*", help="rows to predict, with * as a wildcard (default all)")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} (takes minutes)")
    options = parser.parse_args()
    patterns = options.ids or ["*"]
    register()
    rows = [row for row in published() if any(fnmatch(row.id, pattern) for pattern in patterns)]
    if not rows:
        print(f"no row is called {' or '.join(patterns)}", file=sys.stderr)
        return 2
    made = [row for row in rows if is_made(row)]
    quiet = options.json
    results = measure(made, tell=lambda result: None if quiet else print(_line(result), flush=True))
    if options.json:
        print(json.dumps([_record(result) for result in results], indent=2))
        return 0
    print(_totals(results))
    if options.write:
        PAGE.write_text(page(published(), results, sensitivities(made)), encoding="utf-8")
    return 0


def _line(result: Any) -> str:
    row = result.row
    figures = f"{result.predicted:12,.1f} {row.value:12,.1f} {result.ratio:6.2f}"
    return f"{row.id:<56} {row.kind:<9}{figures}  {row.metric}"


def _record(result: Any) -> dict[str, Any]:
    row = result.row
    return {
        "id": row.id,
        "class": row.kind,
        "trace": row.trace,
        "use": row.use,
        "metric": row.metric,
        "predicted": result.predicted,
        "published": row.value,
        "ratio": result.ratio,
    }


def _totals(results: list[Any]) -> str:
    from benchmarks.accuracy.measure import summaries, traces

    lines = [
        f"{total.kind:<9}{total.count:4} rows: median {total.median:6.1%}, worst {total.worst.error:6.1%} "
        f"({total.worst.row.id})"
        for total in summaries(results)
    ]
    lines += [
        f"{name:<36} {len(members):3} variants: tau {tau:5.2f}"
        for name, (members, tau) in traces(results).items()
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
