"""A small kernel and a timeline written by hand for it: what the tests of the report look at. Tests nothing by itself.

The times are made up, so that the texts do not change with the time model; only their shape is that of a real one.
"""

from __future__ import annotations

from functools import cache

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from interpreter.profile import Profile
from interpreter.timing import timeline as t
from interpreter.timing.timeline import DmaUse, EngineUse, Event, Step, Timeline, Wait
from nki.ir.program import Program

NS = 1000
LATENCY = 9300 * NS


@nki.jit
def gelu_of_product(x, w):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    xt = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
    wt = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=xt, src=x)
    nisa.dma_copy(dst=wt, src=w)
    acc = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=acc, stationary=xt, moving=wt)
    act = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=act, op=nl.gelu, data=acc)
    twice = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=twice, data=act, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out, src=twice)
    return out


LOAD_X, LOAD_W, PRODUCT, GELU, DOUBLE, STORE = range(6)

EVENTS = [
    (LOAD_X, "gpsimd", 0, 600, 600, "issue"),
    (LOAD_X, "dma0", 1300, 2000, 2300, "dma"),
    (LOAD_W, "gpsimd", 600, 1200, 1200, "issue"),
    (LOAD_W, "dma0", 2000, 4000, 4300, "dma"),
    (PRODUCT, "tensor", 4400, 5300, 5450, "multiply_moving"),
    (PRODUCT, "tensor", 4350, 4450, 4450, "load_stationary"),
    (GELU, "scalar", 5500, 6100, 6200, "compute"),
    (DOUBLE, "vector", 6250, 6800, 6950, "compute"),
    (STORE, "gpsimd", 7000, 7600, 7600, "issue"),
    (STORE, "dma1", 8300, 9000, 9300, "dma"),
]

WAITS = [
    ("gpsimd", STORE, 1200, 7000, t.DATA, DOUBLE),
    ("tensor", PRODUCT, 0, 2000, t.DMA_LATENCY, LOAD_W),
    ("tensor", PRODUCT, 2000, 4000, t.DMA_BANDWIDTH, LOAD_W),
    ("tensor", PRODUCT, 4000, 4350, t.SEMAPHORE, LOAD_W),
    ("scalar", GELU, 0, 1283, t.TABLE_LOAD, None),
    ("scalar", GELU, 1283, 5500, t.DATA, PRODUCT),
    ("vector", DOUBLE, 0, 6200, t.DATA, GELU),
    ("vector", DOUBLE, 6200, 6250, t.SEMAPHORE, GELU),
]

CRITICAL = [
    (LOAD_W, t.ISSUE, 1200),
    (LOAD_W, t.DMA_LATENCY, 800),
    (LOAD_W, t.DMA_BANDWIDTH, 2000),
    (LOAD_W, t.DMA_LATENCY, 350),
    (PRODUCT, t.EXECUTE, 1150),
    (GELU, t.EXECUTE, 750),
    (DOUBLE, t.EXECUTE, 750),
    (STORE, t.ISSUE, 600),
    (STORE, t.DMA_LATENCY, 700),
    (STORE, t.DMA_BANDWIDTH, 700),
    (STORE, t.DMA_LATENCY, 300),
]

BUSY = {"tensor": (950, 1), "vector": (550, 1), "scalar": (600, 1), "gpsimd": (1800, 3), "sync": (0, 0)}


@cache
def sample_program() -> Program:
    """The kernel, staged for trn2."""
    return gelu_of_product.ir(np.ones((128, 128), np.float32), np.ones((128, 512), np.float32), target="trn2")


def handmade(
    program: Program,
    events: list[tuple[int, str, int, int, int, str]],
    waits: list[tuple[str, int, int, int, str, int | None]],
    critical: list[tuple[int, str, int]] = CRITICAL,
    latency: int = LATENCY,
) -> Timeline:
    """A timeline from tables whose times are nanoseconds."""
    engines = {}
    for name, (busy, count) in BUSY.items():
        reasons: dict[str, int] = {}
        for unit, _, start, end, reason, _ in waits:
            if unit == name:
                reasons[reason] = reasons.get(reason, 0) + (end - start) * NS
        engines[name] = EngineUse(busy * NS, busy * NS / max(1, latency), count, reasons, 0)
    made = Timeline(program.target, "program", 10_000 * NS, (), lambda *_: made)
    made.__dict__.update(
        latency_ps=latency,
        events=tuple(Event(0, i, lane, a * NS, b * NS, c * NS, kind) for i, lane, a, b, c, kind in events),
        waits=tuple(Wait(0, unit, i, a * NS, b * NS, why, on) for unit, i, a, b, why, on in waits),
        engines=engines,
        dma=DmaUse(3, 384, 589_824, (1_700 * NS,) * program.target.dma_engines, 3_400 * NS),
        critical_path=tuple(Step(i, reason, ps * NS) for i, reason, ps in critical),
    )
    return made


def sample_profile() -> Profile:
    """The profile of the sample."""
    program = sample_program()
    return Profile(program, handmade(program, EVENTS, WAITS))
