"""nl.device_print: prefix, shape, dtype, place and values, when the kernel runs (semantics rule 150)."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.language as nl
from nki import errors
from tests.language.run import down, f32, up


@nki.jit
def kernel(x):
    t = up(x)
    for i in range(2):
        nl.device_print("step", t[0:1, i : i + 1])
    nl.device_print("input", x)
    nl.device_print("row", x[0])
    return down(t)


@pytest.mark.parametrize("eager", [False, True])
def test_values_are_printed(eager, capfd):
    nki.simulate(kernel, eager=eager)(np.array([[7.0, 8.0]], f32))
    text = capfd.readouterr().out
    assert text.count("step [1, 1] float32") == 2
    assert text.index("[[7.]]") < text.index("[[8.]]") < text.index("[[7. 8.]]")
    assert "test_device_print.py:20" in text and "input [1, 2] float32" in text and "row [2] float32" in text


def test_printing_changes_nothing_and_keeps_its_place(capfd):
    @nki.jit
    def changing(x):
        t = up(x)
        nl.device_print("before", t)
        t2 = nl.add(t, 1.0)
        t[...] = t2
        nl.device_print("after", t)
        return down(t)

    result = nki.simulate(changing)(np.array([[1.0]], f32))
    assert result.tolist() == [[2.0]]
    text = capfd.readouterr().out
    assert text.index("before") < text.index("[[1.]]") < text.index("after") < text.index("[[2.]]")


def test_refusals():
    @nki.jit
    def wrong(x):
        nl.device_print(3, up(x))
        return x

    with pytest.raises(errors.ArgumentError, match="a string"):
        nki.simulate(wrong)(np.zeros((1, 1), f32))


def test_dumps(tmp_path, monkeypatch):
    """Rule 150: the folder that the runtime writes to."""
    monkeypatch.setenv("NEURON_RT_DEBUG_OUTPUT_DIR", str(tmp_path))

    @nki.jit
    def kernel(a):
        nl.device_print("my tile", nl.load(a))

    values = np.arange(4, dtype=np.float32).reshape(2, 2)
    for number in (0, 1):
        kernel(values)
        assert (np.load(tmp_path / "my_tile" / "core_0" / str(number) / "tensor.npy") == values).all()
