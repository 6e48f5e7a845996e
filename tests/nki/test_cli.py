"""The command line: each command, its JSON form, its exit codes, and its words for mistakes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from nki.cli import main

X = np.arange(8, dtype=np.float32).reshape(2, 4)

KERNELS = '''
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scale(x, factor=2.0):
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


launched = scale[1]


def plain(x, y):
    """Not decorated."""
    return scale(x), scale(y, 3.0)


def nothing(x):
    return None


def unwritten(x):
    return nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)


def wrong(x):
    return nl.ndarray((256, 4), dtype=x.dtype, buffer=nl.sbuf)


def crash(x):
    return {}["missing"]


class Layers:
    @staticmethod
    def double(x):
        return scale(x, 2.0)


number = 3
'''


class Shell:
    """A folder with kernels and arrays in it, and `nki` run there."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.capsys = capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr."""
        try:
            code = main(words)
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = self.capsys.readouterr()
        return code, out, err

    def fine(self, *words: str) -> str:
        """The output of a command that succeeds."""
        code, out, err = self(*words)
        assert (code, err) == (0, "")
        return out


@pytest.fixture
def shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shell]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    (tmp_path / "cli_kernels.py").write_text(KERNELS, encoding="utf-8")
    np.save("x.npy", X)
    np.save("long.npy", np.arange(8).reshape(2, 4))
    yield Shell(tmp_path, capsys)
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_run_prints_outputs(shell: Shell) -> None:
    out = shell.fine("run", "cli_kernels.py:scale", "x.npy")
    assert out == "output 0: float32[2, 4]\n[[ 0.  2.  4.  6.]\n [ 8. 10. 12. 14.]]\n"


@pytest.mark.parametrize(
    ("kernel", "arguments", "factor"),
    [
        ("scale", ["x.npy"], 2),
        ("scale", ["x.npy", "factor=3.0"], 3),
        ("scale", ["x=x.npy", "factor=-1.5"], -1.5),
        ("scale", ["x.npy", "-1.5"], -1.5),
        ("scale", ["x.npy", "--eager"], 2),
        ("scale", ["x.npy", "--sanitize"], 2),
        ("scale", ["x.npy", "--target", "trn1", "4"], 4),
        ("scale", ["--target", "trn1", "x.npy", "-4"], -4),
        ("launched", ["x.npy"], 2),
        ("Layers.double", ["x.npy"], 2),
    ],
)
def test_run_writes_outputs(shell: Shell, kernel: str, arguments: list[str], factor: float) -> None:
    shell.fine("run", f"cli_kernels.py:{kernel}", "-o", "out.npy", *arguments)
    np.testing.assert_array_equal(np.load("out.npy"), X * factor)


def test_run_of_a_plain_function_with_two_outputs(shell: Shell) -> None:
    out = shell.fine("run", "cli_kernels.py:plain", "x.npy", "-o", "a.npy", "x.npy:float16", "-o", "b.npy")
    assert out == "output 0: float32[2, 4] -> a.npy\noutput 1: float16[2, 4] -> b.npy\n"
    np.testing.assert_array_equal(np.load("b.npy"), (X * 3).astype(np.float16))


def test_run_json(shell: Shell) -> None:
    words = ("run", "cli_kernels.py:plain", "x.npy", "x.npy:bfloat16", "--json")
    expected = [{"shape": [2, 4], "dtype": dtype, "file": None} for dtype in ("float32", "bfloat16")]
    assert json.loads(shell.fine(*words)) == {"outputs": expected}
    written = json.loads(shell.fine(*words, "-o", "a.npy", "-o", "b.npy"))
    assert [output["file"] for output in written["outputs"]] == ["a.npy", "b.npy"]
    bits = np.load("b.npy")
    assert bits.dtype.kind == "V" and bits.itemsize == 2
    np.testing.assert_array_equal(bits.view(ml_dtypes.bfloat16), (X * 3).astype(ml_dtypes.bfloat16))
    shell.fine("run", "cli_kernels.py:scale", "b.npy:bfloat16", "-o", "c.npy")  # its own output is read again
    np.testing.assert_array_equal(np.load("c.npy").view(ml_dtypes.bfloat16).astype(np.float32), X * 6)


def test_run_without_outputs(shell: Shell) -> None:
    assert shell.fine("run", "cli_kernels.py:nothing", "x.npy") == ""


USAGE = [
    ([], "required"),
    (["frob"], "invalid choice"),
    (["run"], "required"),
    (["run", "cli_kernels.py:scale", "x.npy", "--no-such"], "--no-such"),
    (["isa", "memset", "more"], "more"),
    (["run", "cli_kernels.py", "x.npy"], "FILE.py:KERNEL"),
    (["run", "cli_kernels.py:nope", "x.npy"], "kernels in it: scale, launched"),
    (["run", "cli_kernels.py:number", "x.npy"], "no kernel named 'number'"),
    (["run", "missing.py:scale"], "no such file: missing.py"),
    (["run", "missing.nkir"], "no such file: missing.nkir"),
    (["run", "cli_kernels.py:scale", "missing.npy"], "no such file: missing.npy"),
    (["run", "cli_kernels.py:scale", "x.txt"], "x.txt"),
    (["run", "cli_kernels.py:scale", "x.npy:float99"], "float99"),
    (["run", "cli_kernels.py:scale", "factor=2.0", "x.npy"], "after a keyword"),
    (["run", "cli_kernels.py:scale", "x.npy", "-o", "a.npy", "-o", "b.npy"], "2 files were given"),
    (["isa", "nope"], "nope"),
]


@pytest.mark.parametrize(("words", "text"), USAGE, ids=lambda value: None)
def test_usage_errors(shell: Shell, words: list[str], text: str) -> None:
    code, out, err = shell(*words)
    assert (code, out) == (2, "")
    assert text in err
    assert "Traceback" not in err


BROKEN = {
    "syntax.py": ("def x(:\n", "syntax.py:1\n"),
    "importing.py": ("\nimport no_such_module\n", "importing.py:2, in <module>"),
    "broken.nkir": ("garbage\n", "broken.nkir:1"),
    "array.npy": ("garbage\n", "is not a .npy array"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files(shell: Shell, name: str) -> None:
    content, text = BROKEN[name]
    (shell.folder / name).write_text(content, encoding="utf-8")
    kernel = {".py": f"{name}:k", ".nkir": name}.get(Path(name).suffix, "cli_kernels.py:scale")
    code, out, err = shell("run", kernel, name if name.endswith(".npy") else "x.npy")
    assert (code, out) == (2 if name.endswith(".npy") else 1, "")
    assert text in err


FAULTS = [
    (["run", "cli_kernels.py:wrong", "x.npy"], "PartitionLimitError[partitions]", "tile"),
    (
        ["run", "cli_kernels.py:crash", "x.npy"],
        "UserError[kernel-exception]: KeyError: 'missing'",
        '{}["missing"]',
    ),
    (["run", "cli_kernels.py:scale", "long.npy"], "DtypeError[dtype]: argument `x`", None),
    (["run", "cli_kernels.py:scale"], "ArgumentError[argument]: scale(): missing", None),
    (["run", "cli_kernels.py:scale", "x.npy", "fctor=1"], "did you mean `factor`?", None),
    (["run", "cli_kernels.py:scale", "x.npy", "--target", "trn9"], "unknown target 'trn9'", None),
    (["run", "cli_kernels.py:unwritten", "x.npy", "--sanitize"], "UnwrittenOutputError", "return nl.ndarray"),
    (["ir", "cli_kernels.py:wrong", "x.npy"], "PartitionLimitError", "(256, 4)"),
]


@pytest.mark.parametrize(("words", "text", "code_line"), FAULTS, ids=lambda value: None)
def test_kernel_errors(shell: Shell, words: list[str], text: str, code_line: str | None) -> None:
    code, out, err = shell(*words)
    assert (code, out) == (1, "")
    assert text in err
    assert "Traceback" not in err and "main.py" not in err
    if code_line is not None and code_line != "tile":
        number = next(n for n, line in enumerate(KERNELS.splitlines(), 1) if code_line in line)
        assert f"cli_kernels.py:{number}" in err


def test_check(shell: Shell) -> None:
    assert shell.fine("check", "cli_kernels.py:scale", "x.npy").endswith("0 errors, 0 warnings, 0 notes\n")
    code, out, _ = shell("check", "cli_kernels.py:wrong", "float32[4,4]")
    assert code == 1
    assert "error[partitions]" in out and "1 error, 0 warnings, 0 notes" in out
    code, out, _ = shell("check", "cli_kernels.py:unwritten", "x.npy")
    assert code == 0
    assert "warning[unwritten-output]" in out and "1 warning" in out


def test_check_json(shell: Shell) -> None:
    code, out, _ = shell("check", "cli_kernels.py:wrong", "x.npy", "--json")
    (found,) = json.loads(out)
    assert code == 1
    assert set(found) == {"code", "severity", "message", "file", "line"}
    assert found["file"].endswith("cli_kernels.py")


def test_blank_arrays_serve_commands_that_look_at_shapes(shell: Shell) -> None:
    out = shell.fine("ir", "cli_kernels.py:scale", "bfloat16[128,512]", "--target", "trn2")
    assert "[128, 512] bfloat16" in out and "on trn2" in out


def test_ir_json(shell: Shell) -> None:
    found = json.loads(shell.fine("ir", "cli_kernels.py:launched", "x.npy", "--json"))
    assert found["kernel"] == "scale" and found["target"] == "trn3" and found["file"] is None
    assert found["text"].startswith("nkir ")


def test_recorded_programs(shell: Shell) -> None:
    assert shell.fine("ir", "cli_kernels.py:scale", "x.npy", "factor=5.0", "-o", "scale.nkir") == ""
    text = (shell.folder / "scale.nkir").read_text(encoding="utf-8")
    assert shell.fine("ir", "scale.nkir") == text + ("" if text.endswith("\n") else "\n")
    (shell.folder / "cli_kernels.py").unlink()
    shell.fine("run", "scale.nkir", "x.npy", "-o", "out.npy")
    np.testing.assert_array_equal(np.load("out.npy"), X * 5)
    shell.fine("run", "scale.nkir", "x=x.npy", "-o", "out.npy")
    assert "0 errors" in shell.fine("check", "scale.nkir")
    for words in (["float32[3,4]"], ["x.npy", "x.npy"], ["y=x.npy"], ["x.npy", "--target", "trn2"], []):
        code, _, err = shell("run", "scale.nkir", *words)
        assert code == 1
        assert "recorded" in err or "scale" in err


def test_profile(shell: Shell) -> None:
    out = shell.fine("profile", "cli_kernels.py:scale", "x.npy", "--html", "p.html", "--perfetto", "p.json")
    assert "scale" in out and "trn3" in out
    assert "html: p.html\n" in out and "perfetto: p.json\n" in out
    assert "<html" in (shell.folder / "p.html").read_text(encoding="utf-8").lower()
    assert json.loads((shell.folder / "p.json").read_text(encoding="utf-8"))


def test_profile_json_and_options(shell: Shell) -> None:
    words = ("profile", "cli_kernels.py:scale", "float32[64,64]", "--json")
    found = json.loads(shell.fine(*words, "--target", "trn2", "--schedule", "program", "--dge", "static"))
    assert found["files"] == {}
    assert "trn2" in json.dumps(found)
    assert shell("profile", "cli_kernels.py:scale", "x.npy", "--schedule", "none")[0] == 2


def test_profile_of_a_recorded_program(shell: Shell) -> None:
    shell.fine("ir", "cli_kernels.py:scale", "x.npy", "-o", "scale.nkir")
    recorded = json.loads(shell.fine("profile", "scale.nkir", "x.npy", "--json"))
    staged = json.loads(shell.fine("profile", "cli_kernels.py:scale", "x.npy", "--json"))
    assert recorded == staged
