"""A file that still imports the old package although its kernels are new, as many public ones do. Tests nothing."""

from __future__ import annotations

import neuronxcc.nki as old
import neuronxcc.nki.isa as old_isa  # noqa: F401
import neuronxcc.nki.language as old_language
import neuronxcc.nki.typing as nt
import nki
import nki.language as nl
from neuronxcc.nki import benchmark, simulate_kernel  # noqa: F401
from neuronxcc.nki.compiler import skip_middle_end_transformations
from neuronxcc.nki.language import bfloat16, par_dim  # noqa: F401

assert old_language.float32 == nl.float32 and old_language.tile_size is nl.tile_size
mod_alloc = old.compiler.sbuf.mod_alloc


def doubled(a: nt.tensor[2, 4]):
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.add(nl.load(a), nl.load(a)))
    return out


def annotated(a: nl.ndarray, b: nl.ndarray | None, kind: nki.dtype):
    out = nl.ndarray(a.shape, kind, buffer=nl.shared_hbm)
    nl.store(out, nl.load(a))
    return out


@skip_middle_end_transformations
@old.jit(mode="baremetal")
def old_kernel(a):
    return old_language.load(a)


@benchmark(warmup=2, iters=3)
def old_benchmark(a):
    return a


@old.trace
def old_trace(a):
    return a
