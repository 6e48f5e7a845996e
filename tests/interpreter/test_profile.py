"""The figures and the conclusions of a profile, and its front door `nki.profile`."""

from __future__ import annotations

import json
import linecache
from pathlib import Path

import numpy as np
import pytest

import nki
from interpreter.profile import Note, Profile
from interpreter.profile.measures import PS_PER_US
from interpreter.profile.sources import short_names, shown_ranges, source_lines
from interpreter.profile.summary import WIDTH, bar
from interpreter.profile.units import bytes_text, share_text, time_text
from interpreter.timing import timeline as t
from tests.conftest import Golden
from tests.interpreter.profile_samples import (
    EVENTS,
    GELU,
    LATENCY,
    LOAD_W,
    PRODUCT,
    gelu_of_product,
    handmade,
    sample_profile,
    sample_program,
)

TABLES = [("scalar", GELU, start, start + 1283, t.TABLE_LOAD, None) for start in (0, 2000, 4000)]
X, W = np.ones((128, 128), np.float32), np.ones((128, 512), np.float32)


def test_summary(golden: Golden) -> None:
    text = str(sample_profile())
    assert max(map(len, text.splitlines())) <= WIDTH
    golden(text)


def test_notes(golden: Golden) -> None:
    golden("\n".join(f"{note.share:.3f} {note.code}: {note}" for note in sample_profile().notes))


def test_figures() -> None:
    profile = sample_profile()
    assert (profile.latency_us, profile.launch_us) == (9.3, 10.0)
    assert list(profile.engines) == ["tensor", "vector", "scalar", "gpsimd", "sync", "dma"]
    tensor = profile.engines["tensor"]
    assert tensor.busy_us == 0.95
    assert tensor.utilisation == pytest.approx(0.95 / 9.3)
    assert list(tensor.waits.values()) == sorted(tensor.waits.values(), reverse=True)
    assert profile.cycles["tensor"] == round(0.95 * 2400)
    assert "dma" not in profile.cycles
    assert profile.dma.bytes_per_descriptor == 1536
    assert profile.dma.gb_per_s == pytest.approx(589_824 / 9.3 / 1000)


def test_lines_add_up() -> None:
    profile = sample_profile()
    assert sum(line.share for line in profile.lines) == pytest.approx(1)
    assert [line.total_us for line in profile.lines] == sorted(
        (e.total_us for e in profile.lines), reverse=True
    )
    assert sum(line.critical_us for line in profile.lines) == pytest.approx(9.3)
    product = next(line for line in profile.lines if "nc_matmul" in line.code)
    assert product.engines_us == {"tensor": 0.95}  # the weights are loaded behind the product for 50 ns
    assert product.function == "gelu_of_product"
    assert Path(product.file).name == "profile_samples.py"


def test_critical_path_is_told_in_order() -> None:
    path = sample_profile().critical_path
    assert sum(step.us for step in path) == pytest.approx(9.3)
    assert (path[0].instruction, path[0].reason) == (LOAD_W, t.ISSUE)
    assert path[-1].mnemonic == "dma_copy"


def test_json_is_plain() -> None:
    profile = sample_profile()
    read = json.loads(json.dumps(profile.to_json()))
    assert read["latency_us"] == 9.3
    assert read["engines"]["tensor"]["waits"]["dma_latency"] == 2.0
    assert [note["text"] for note in read["notes"]] == list(profile.notes)
    assert set(read) >= {"kernel", "target", "dma", "lines", "critical_path", "schedule", "launch_us"}


def test_a_note_is_a_string_that_knows_its_place() -> None:
    note = sample_profile().notes[0]
    assert isinstance(note, str) and isinstance(note, Note)
    assert note.line > 0 and note.file.endswith("profile_samples.py")


@pytest.mark.parametrize(
    ("events", "waits", "critical", "code", "words"),
    [
        (
            [(PRODUCT, "tensor", 0, 9000, 9300, "multiply_moving")],
            [],
            [],
            "engine-bound",
            "engine is busy 97%",
        ),
        (
            [(GELU, "scalar", 0, 50, 60, "compute")],
            [],
            [(GELU, t.EXECUTE, 50)],
            "short-instructions",
            "100% of",
        ),
        (EVENTS, TABLES, [(GELU, t.TABLE_LOAD, 3849)], "activation-tables", "3 times"),
        (EVENTS, [("tensor", PRODUCT, 0, 4000, t.BUFFER, GELU)], [], "wait-buffer", "more buffers"),
        (
            EVENTS,
            [("tensor", PRODUCT, 0, 4000, t.DATA, PRODUCT)],
            [(PRODUCT, t.EXECUTE, 4000)],
            "wait-data",
            "its own results",
        ),
        (
            EVENTS,
            [("tensor", PRODUCT, 0, 4000, t.PORT_CONFLICT, None)],
            [(PRODUCT, t.PORT_CONFLICT, 4000)],
            "wait-port_conflict",
            "shared port",
        ),
    ],
)
def test_each_rule_speaks(events: list, waits: list, critical: list, code: str, words: str) -> None:
    program = sample_program()
    latency = 300_000 if code == "short-instructions" else LATENCY
    profile = Profile(program, handmade(program, events, waits, critical, latency))
    assert words in next(note for note in profile.notes if note.code == code)


def test_waiting_off_the_critical_path_is_no_bottleneck() -> None:
    codes = [note.code for note in sample_profile().notes]
    assert "wait-table_load" not in codes  # it happens while the data are being loaded


def test_every_reason_has_words_and_a_group() -> None:
    from interpreter.profile.units import GROUPS, reason_group, reason_text

    for reason in t.REASONS:
        assert reason_group(reason) in GROUPS
        assert reason_text(reason)


def test_a_program_without_instructions_has_a_profile() -> None:
    program = sample_program()
    profile = Profile(program, handmade(program, [], [], critical=[], latency=0))
    assert "no instructions" in profile.notes[0]
    assert str(profile) and profile._repr_html_() and profile.to_json()


# --- the front door -----------------------------------------------------------------------------------------


def test_profile_of_a_kernel() -> None:
    profile = nki.profile(gelu_of_product, target="trn2")(X, W)
    assert profile.target == "trn2"
    assert profile.latency_us > 0
    assert sum(step.us for step in profile.critical_path) == pytest.approx(profile.latency_us)
    for engine in profile.engines.values():
        assert engine.busy_us + sum(engine.waits.values()) <= profile.latency_us + 1e-6
    assert sum(profile.reading.held.values()) == round(sum(e.total_us for e in profile.lines) * PS_PER_US)


def test_profile_names_what_replaced_the_old_decorator() -> None:
    with pytest.raises(nki.errors.RemovedApiError, match="to_html"):
        nki.profile(working_directory="d", save_trace_name="t")


def test_a_saved_program_has_the_same_profile(tmp_path: Path) -> None:
    path = tmp_path / "program.nkir"
    path.write_text(str(sample_program()), encoding="utf-8")
    assert str(nki.profile(nki.load_ir(path))()) == str(nki.profile(gelu_of_product, target="trn2")(X, W))


def test_profile_refuses_unknown_choices() -> None:
    with pytest.raises(nki.errors.ArgumentError, match="schedule='fast'"):
        nki.profile(gelu_of_product, schedule="fast")
    with pytest.raises(nki.errors.UnknownKeywordError, match="shedule"):
        nki.profile(gelu_of_product, shedule="auto")


# --- words --------------------------------------------------------------------------------------------------


def test_quantities_read_well() -> None:
    assert [time_text(ps) for ps in (0, 850_000, 12_412_000, 3_210_000_000)] == [
        "0 ns",
        "850 ns",
        "12.4 µs",
        "3.21 ms",
    ]
    assert [share_text(s) for s in (0, 0.0004, 0.034, 0.62, 1)] == ["0%", "<0.1%", "3.4%", "62%", "100%"]
    assert [bytes_text(n) for n in (512, 65_536, 2_621_440)] == ["512 B", "64 KiB", "2.5 MiB"]
    assert [bar(share, 4) for share in (0, 0.5, 1, 2)] == ["    ", "██  ", "████", "████"]


def test_short_names_tell_files_apart() -> None:
    names = short_names(["/a/x/kernel.py", "/a/y/kernel.py", "/a/y/tile.py"])
    assert list(names.values()) == ["x/kernel.py", "y/kernel.py", "tile.py"]


def test_source_is_python_only(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("not for a report")
    assert linecache.getline(str(secret), 1)  # even if something has read it before
    assert source_lines(str(secret)) == []
    assert source_lines(str(tmp_path / "absent.py")) == []


def test_source_ranges_join() -> None:
    assert shown_ranges([10, 12, 60], 100, around=2, join=3) == [(8, 14), (58, 62)]
    assert shown_ranges([1, 200], 100, around=2) == [(1, 3)]
