"""Time, traces, printing and importing."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from tests.public_cases.steps import bank, bf16, down, events_of, f32, line_of, read_out, tile, up


def timeline(kernel, *arrays, target="trn1"):
    """The events of a run."""
    return nki.profile(kernel, target=target, schedule="program")(*arrays)


def products(count, width=512):
    """A kernel that multiplies so often with the same operands."""

    @nki.jit
    def kernel(a, b):
        s, m, p = up(a), up(b), bank((128, width))
        for _ in range(count):
            nisa.nc_matmul(dst=p, stationary=s, moving=m)
        return read_out(p)

    return kernel


def tensor_engine(dtype, count, width=512):
    """Busy cycles of the Tensor engine."""
    arrays = np.ones((128, 128), dtype), np.ones((128, width), dtype)
    return timeline(products(count, width), *arrays).cycles["tensor"]


def test_pc_75_float32_takes_four_times_as_long():
    narrow, wide = tensor_engine(bf16, 32), tensor_engine(f32, 32)
    assert 3.5 <= wide / narrow <= 4.5
    each = (narrow - tensor_engine(bf16, 16)) / 16
    assert 480 <= each <= 680
    assert (tensor_engine(bf16, 32, 2) - tensor_engine(bf16, 16, 2)) / 16 >= 60


def chain(step):
    """A kernel of sixteen steps, each on the result of the one before."""

    @nki.jit
    def kernel(x):
        t = up(x)
        for _ in range(16):
            step(t, t)
        return down(t)

    return kernel


def add_one(dst, data):
    nisa.tensor_scalar(dst=dst, data=data, op0=nl.add, operand0=1.0, engine=nisa.engine.vector)


def add_itself(dst, data):
    nisa.tensor_tensor(dst=dst, data1=data, data2=data, op=nl.add, engine=nisa.engine.vector)


@nki.jit
def fan(x):
    t, outputs = up(x), [tile(x.shape) for _ in range(16)]
    for o in outputs:
        add_one(o, t)
    return down(outputs[15])


def vector_span(kernel, width):
    """From the first instruction on the Vector engine to the end of its last."""
    events = events_of(timeline(kernel, np.ones((128, width), f32)), "tensor_scalar", "tensor_tensor")
    assert len(events) == 16
    return max(e.end_ps for e in events) - min(e.start_ps for e in events)


def test_pc_77_dependent_work_takes_longer_than_independent_work():
    narrow = vector_span(chain(add_one), 16) / vector_span(fan, 16)
    wide = vector_span(chain(add_one), 2048) / vector_span(fan, 2048)
    assert narrow > 1.3 and 1.0 <= wide < 1.1
    two_inputs = vector_span(chain(add_itself), 2048) / vector_span(chain(add_one), 2048)
    assert 1.6 <= two_inputs <= 2.2


def test_pc_79_a_bar_knows_its_line_and_its_callers():
    @nki.jit
    def kernel(x):
        t = up(x)
        for i in range(2):
            nisa.activation(dst=t, op=nl.exp, data=t, name=f"e{i}")
        return down(t)

    program = kernel.ir(np.zeros((4, 4), f32), target="trn2")
    trace = json.dumps(nki.profile(kernel, target="trn2")(np.zeros((4, 4), f32)).to_json())
    for number in range(2):
        node = next(each for each in program.instructions() if each.name == f"e{number}")
        assert node.span.line == line_of(kernel, "nisa.activation") and f"e{number}" in str(program)
    load = next(iter(program.instructions()))
    assert [f.line for f in load.span.frames] == [line_of(up, "nisa.dma_copy"), line_of(kernel, "up(x)")]
    assert "test_tools.py" in trace and str(line_of(kernel, "nisa.activation")) in trace


def test_pc_79_a_bar_knows_the_value_of_its_loop(tmp_path):
    @nki.jit
    def kernel(x):
        t = up(x)
        for i in range(2):
            nisa.activation(dst=t, op=nl.exp, data=t, name=f"e{i}")
        return down(t)

    path = tmp_path / "trace.json"
    nki.profile(kernel, target="trn2")(np.zeros((4, 4), f32)).to_perfetto(path)
    arguments = [event.get("args", {}) for event in json.loads(path.read_text())["traceEvents"]]
    found = {(each["name"].strip("'"), each["loops"]) for each in arguments if "loops" in each}
    assert found == {("e0", "i=0"), ("e1", "i=1")}


def test_pc_81_printing_inside_a_kernel(capsys):
    @nki.jit
    def kernel(x):
        t = up(x)
        for i in range(2):
            nl.device_print("step", t[0:1, i : i + 1])
        print(t.shape, t.dtype)
        return down(t)

    nki.simulate(kernel, target="trn2")(np.array([[7.0, 8.0]], f32))
    out = capsys.readouterr().out
    lines = [line for line in out.splitlines() if "step" in line]
    assert len(lines) == 2 and "(1, 2) float32" in out
    assert out.index("7.") < out.index("8.")
    for line in lines:
        assert "float32" in line and str(line_of(kernel, "nl.device_print")) in line


def test_pc_81_a_breakpoint_shows_values(monkeypatch):
    seen = []

    def stop(*_, **__):
        frame = sys._getframe(1)
        seen.append((frame.f_code.co_name, frame.f_locals["t"].numpy().tolist()))

    @nki.jit
    def kernel(x):
        t = up(x)
        breakpoint()
        return down(t)

    monkeypatch.setattr(sys, "breakpointhook", stop)
    nki.simulate(kernel)(np.array([[7.0, 8.0]], f32))
    assert seen == [("kernel", [[7.0, 8.0]])]


IMPORT = """
import sys, time, socket
def refused(*a, **k): raise OSError("no network here")
socket.socket.connect = refused
begin = time.perf_counter()
import nki, nki.isa, nki.language
assert time.perf_counter() - begin < 5
assert "torch" not in sys.modules and "jax" not in sys.modules
print(nki.__name__)
"""


@pytest.mark.slow
def test_pc_83_import_on_a_plain_machine():
    made = subprocess.run(
        [sys.executable, "-W", "error", "-c", IMPORT], capture_output=True, text=True, timeout=60
    )
    assert (made.returncode, made.stdout, made.stderr) == (0, "nki\n", "")


# --- neighbours ---------------------------------------------------------------------------------------------


def test_time_does_not_depend_on_values_or_on_the_host():
    kernel = products(2)
    a, b = np.ones((128, 128), f32), np.ones((128, 512), f32)
    first = timeline(kernel, a, b).latency_us
    assert timeline(kernel, a * np.nan, b * 3).latency_us == first


def test_twice_the_work_takes_about_twice_as_long():
    few, some, many = (tensor_engine(bf16, count) for count in (16, 32, 64))
    assert 1.98 <= (many - some) / (some - few) <= 2.02  # the engine warms up once, whatever the work
    assert 1.8 <= many / some <= 2.1


def test_values_are_the_same_whether_or_not_one_prints(capsys):
    def kernel(x, talkative):
        t = up(x)
        if talkative:
            nl.device_print("t", t)
        return down(t)

    x = np.arange(6, dtype=f32).reshape(2, 3)
    found = [nki.simulate(kernel)(x, talkative).tobytes() for talkative in (False, True)]
    assert found[0] == found[1] and "t" in capsys.readouterr().out
