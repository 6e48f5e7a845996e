"""Toy instructions for the tests of the IR, which must work without the real instruction set.

They are taken out of the registry as soon as they are defined; `with toys():` puts them in.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from nki.enums import engine as Engine
from nki.enums import matmul_perf_mode, nc_version
from nki.ir.builder import Builder
from nki.ir.cost import Phase
from nki.ir.instruction import REGISTRY, Instruction, Steps, engine_choice
from nki.ir.operands import (
    BOOLEAN,
    FLOAT32,
    HBM_OR_SBUF,
    INTEGER,
    INTEGERS_LIST,
    NUMBER,
    ON_CHIP,
    PATTERN,
    PSUM,
    SBUF,
    TEXT,
    attribute,
    destination,
    one_of,
    optional,
    register,
    source,
)
from nki.ir.verify import Fault, rule
from nki.target import Target

_BEFORE = dict(REGISTRY)


class Toy(Instruction, abstract=True):
    """Base: no arithmetic, no time."""

    def semantics(self, a: Any) -> Steps:
        yield from ()

    def cost(self, target: Target) -> tuple[Phase, ...]:
        return ()


class toy_move(Toy):
    """dst = src, counted in elements."""

    engines = (Engine.dma,)
    limits = {}

    dst = destination("E", HBM_OR_SBUF, rows=True)
    src = source("E", HBM_OR_SBUF, rows=True)
    name = attribute(optional(TEXT), None)


class toy_scale(Toy):
    """dst = src * factor + bias."""

    dst = destination("P F", ON_CHIP)
    src = source("P F", ON_CHIP, indirect=True)
    factor = attribute(NUMBER, 1.0)
    bias = source("P 1", SBUF, FLOAT32, scalar=True, default=None)
    engine = engine_choice(Engine.vector, Engine.scalar, Engine.gpsimd)
    name = attribute(optional(TEXT), None)

    def engine_fault(self, engine: Engine, target: Target) -> str | None:
        slow = engine is Engine.scalar and target.version is nc_version.gen2
        return "the trn1 Scalar engine has no toy_scale" if slow else None

    @rule("a factor of zero is pointless", severity="warning")
    def factor_counts(self, target: Target) -> Fault | None:
        return Fault("factor", found=self.factor) if self.factor == 0 else None


class toy_product(Toy):
    """dst[M, N] (+)= stationary[K, M].T @ moving[K, N], in accumulation groups."""

    engines = (Engine.tensor,)
    limits = {"K": "pmax", "M": "gemm_stationary_fmax", "N": "gemm_moving_fmax"}
    accumulates = True

    dst = destination("M N", PSUM, FLOAT32, reads=True)
    stationary = source("K M", SBUF)
    moving = source("K N", SBUF)
    accumulate = attribute(optional(BOOLEAN), None)
    mode = attribute(one_of(matmul_perf_mode, "nisa.matmul_perf_mode"), matmul_perf_mode.none)

    def resolve(self, builder: Builder) -> None:
        state = builder.groups.state(self.dst)
        if self.accumulate is None and state != "mixed":
            self.accumulate = state == "written"
        builder.groups.wrote(self.dst)

    @rule("stationary and moving must have one dtype")
    def one_dtype(self, target: Target) -> Fault | None:
        if self.stationary.dtype == self.moving.dtype:
            return None
        return Fault(
            "moving", found=str(self.moving.dtype), allowed=str(self.stationary.dtype), remedy="cast it"
        )


class toy_shuffle(Toy):
    """One attribute of each kind."""

    since = nc_version.gen3

    data = destination("P *", SBUF, reads=True)
    amount = source("P 1", SBUF, FLOAT32, scalar=True)
    pattern = attribute(PATTERN)
    axes = attribute(INTEGERS_LIST, (1,))
    count = attribute(INTEGER, 0)
    strict = attribute(BOOLEAN, False)
    limit = attribute(optional(NUMBER), None)
    title = attribute(TEXT, "")
    engine = engine_choice(Engine.gpsimd, Engine.vector)


class toy_count(Toy):
    """dst = src + step, all of them registers."""

    engines = (Engine.gpsimd,)
    limits = {}

    dst = register("out")
    src = register("in", numbers=True)
    step = register("in", numbers=True, default=1)
    unless = register("in", default=None)


TOYS: dict[str, type[Instruction]] = {
    name: REGISTRY.pop(name) for name in list(REGISTRY) if name not in _BEFORE
}


@contextmanager
def toys() -> Iterator[dict[str, type[Instruction]]]:
    """The toys, and nothing else, in the registry."""
    before = dict(REGISTRY)
    REGISTRY.clear()
    REGISTRY.update(TOYS)
    try:
        yield TOYS
    finally:
        REGISTRY.clear()
        REGISTRY.update(before)
