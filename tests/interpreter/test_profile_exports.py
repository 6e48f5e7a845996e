"""A profile for other tools: the trace opens, the table can be read, and neither loses an event."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from nki.errors import MissingExtraError
from tests.conftest import Golden
from tests.interpreter.profile_samples import EVENTS, LATENCY, WAITS, sample_profile


def test_trace(golden: Golden, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    sample_profile().to_perfetto(path)
    golden(path.read_text(encoding="utf-8"), suffix=".json")


def test_trace_is_well_formed(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    sample_profile().to_perfetto(path)
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert list(names.values()) == ["Tensor", "Tensor (2)", "Vector", "Scalar", "GpSimd", "DMA 0", "DMA 1"]
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert set(tracks) == set(names)
    for spans in tracks.values():  # stretches of one track must not overlap in this format
        spans.sort()
        assert all(end <= start + 1e-9 for (_, end), (start, _) in pairwise(spans))
    assert sum(map(len, tracks.values())) == len(EVENTS) + len(WAITS)
    assert max(end for spans in tracks.values() for _, end in spans) <= LATENCY / 1e6


def test_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "events.parquet"
    sample_profile().to_parquet(path)
    table = parquet.read_table(path)
    assert table.num_rows == len(EVENTS) + len(WAITS)
    rows = table.to_pylist()
    assert rows == sorted(rows, key=lambda row: row["start_ps"])
    product = next(row for row in rows if row["phase"] == "multiply_moving")
    assert (product["engine"], product["mnemonic"], product["end_ps"]) == ("tensor", "nc_matmul", 5_300_000)
    assert product["file"].endswith("profile_samples.py") and product["line"] > 0
    wait = next(row for row in rows if row["reason"] == "dma_bandwidth")
    assert (wait["phase"], wait["because_of"]) == ("wait", 1)
    assert table.schema.metadata[b"kernel"] == b"gelu_of_product"


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install open-nki\[profile\]"):
        sample_profile().to_parquet(tmp_path / "events.parquet")
