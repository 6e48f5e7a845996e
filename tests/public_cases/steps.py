"""Steps that the cases share: tiles, loads, stores, and running a kernel both ways. Tests nothing.

`test_pc_NN` is a report, numbered as in our log of public reports; what stands below it in a file are neighbours:
other faults of the same family.
"""

from __future__ import annotations

import inspect
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.errors import Diagnostic, NkiError

f32 = np.float32
bf16 = ml_dtypes.bfloat16
FP32_MIN = float(np.finfo(f32).min)


def tile(shape: tuple[int, ...], dtype: Any = nl.float32, buffer: Any = nl.sbuf, **more: Any) -> Any:
    """A fresh tile."""
    return nl.ndarray(shape, dtype=dtype, buffer=buffer, **more)


def bank(shape: tuple[int, ...], dtype: Any = nl.float32) -> Any:
    """A fresh tile in PSUM."""
    return tile(shape, dtype, nl.psum)


def up(tensor: Any) -> Any:
    """An HBM tensor in a new SBUF tile."""
    loaded = tile(tensor.shape, tensor.dtype)
    nisa.dma_copy(dst=loaded, src=tensor)
    return loaded


def down(source: Any) -> Any:
    """An SBUF tile in a new output."""
    output = tile(source.shape, source.dtype, nl.shared_hbm)
    nisa.dma_copy(dst=output, src=source)
    return output


def read_out(accumulator: Any) -> Any:
    """A PSUM tile in a new output."""
    copy = tile(accumulator.shape, accumulator.dtype)
    nisa.tensor_copy(dst=copy, src=accumulator)
    return down(copy)


def run(kernel: Any, *arrays: Any, target: str = "trn2", **options: Any) -> Any:
    """The outputs, which are the same bits planned and eager."""
    copies = [[a.copy() if isinstance(a, np.ndarray) else a for a in arrays] for _ in range(2)]
    eager = nki.simulate(kernel, target=target, eager=True, **options)(*copies[0])
    planned = nki.simulate(kernel, target=target, **options)(*copies[1])
    both = [x if isinstance(x, tuple) else (x,) for x in (eager, planned)]
    for one, other in zip(*both):
        assert one.dtype == other.dtype and one.tobytes() == other.tobytes()
    return planned


def fails(kernel: Any, *arrays: Any, target: str = "trn2", **options: Any) -> NkiError:
    """The error of a run, which is of one class and text planned and eager."""
    caught = []
    for eager in (False, True):
        with pytest.raises(NkiError) as info:
            nki.simulate(kernel, target=target, eager=eager, **options)(*arrays)
        caught.append(info.value)
    assert type(caught[0]) is type(caught[1]) and caught[0].message == caught[1].message
    return caught[1]


def report(kernel: Any, *arrays: Any, target: str = "trn2") -> Diagnostic:
    """The worst finding of a check without a run."""
    found = [d for d in kernel.check(*arrays, target=target) if d.severity != "note"]
    assert found, "nothing is reported"
    return found[0]


def line_of(function: Any, piece: str) -> int:
    """The line with `piece` in the source of a function."""
    lines, first = inspect.getsourcelines(getattr(function, "func", function))
    return first + next(number for number, line in enumerate(lines) if piece in line)


def exact(found: Any, expected: Any) -> None:
    """Equal shape and values, bit for bit but for the sign of zero."""
    expected = np.asarray(expected)
    assert found.shape == expected.shape, (found.shape, expected.shape)
    np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))


def events_of(profile: Any, *mnemonics: str) -> list[Any]:
    """The stretches of work of such instructions, in order of their start."""
    names = [[node.mnemonic for node in core] for core in profile.program.cores]
    chosen = [e for e in profile.timeline.events if names[e.core][e.index] in mnemonics]
    return sorted(chosen, key=lambda event: event.start_ps)
