"""Every instruction of the registry, on each generation that has it, for each dtype of its first input: legal calls are
accepted and give the same bits planned and eager; whatever is one step outside its declaration is refused, naming it.

What the values are is tested in tests/isa, and for elementwise instructions over all dtypes in `test_elementwise.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest

import nki
from nki import dtypes, errors
from nki.enums import MemoryRegion
from nki.ir.instruction import REGISTRY
from nki.ir.operands import REQUIRED
from nki.target import get_target
from nki.target_facts import GENERATIONS
from tests.conformance.legal import ELSEWHERE, TIED, Call, first_input, legal, tied
from tests.isa.ties import declared, dimensions, size_of
from tests.source_tree import ROOT

NAMES = [
    name for name, cls in sorted(REGISTRY.items()) if name not in ELSEWHERE and cls.__module__[:4] == "nki."
]
LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long"
NOT_YET = {("nc_matmul", "float8_e4m3fn"): "trn3"}
"""Dtypes that an operand takes from a later generation on than the instruction exists."""


@pytest.fixture(autouse=True)
def _no_round_trips(monkeypatch: pytest.MonkeyPatch) -> None:
    """Printing and parsing each of these thousands of programs is the work of tests/ir."""
    monkeypatch.setenv("NKI_CHECK", "0")


def accepted(name: str, generation: str) -> list[dtypes.DType]:
    """The dtypes that the first input may have."""
    kinds = sorted(first_input(REGISTRY[name]).dtypes)
    target = get_target(generation)
    return [k for k in kinds if target.version >= get_target(NOT_YET.get((name, k), generation)).version]


def exists(name: str, generation: str) -> bool:
    return get_target(generation).version >= REGISTRY[name].since


def usual(name: str, **sizes: int) -> Call:
    """The legal call on float32 data, or on the first dtype there is."""
    kinds = accepted(name, "trn3")
    return legal(REGISTRY[name], dtypes.float32 if dtypes.float32 in kinds else kinds[0], **sizes)


def refused(call: Call, target: str = "trn3") -> errors.NkiError:
    """The error of a call, which must come from the instruction itself."""
    with pytest.raises(errors.NkiError) as caught:
        call.kernel().ir(call.arrays(), target=target)
    assert caught.value.message.startswith(f"{call.name}:"), caught.value.message
    return caught.value


def test_what_is_left_out_exists() -> None:
    assert set(ELSEWHERE) <= set(REGISTRY) and set(TIED) <= set(REGISTRY)
    for reason in ELSEWHERE.values():
        folder = reason.partition("tests/")[2] or f"conformance/{reason.rpartition(' ')[2]}"
        assert (ROOT / "tests" / folder).exists(), reason


def test_words_of_an_instructions_own_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """`LEGAL` of a test file, which goes where the tables of this folder go."""
    assert declared("tensor_copy") == {} and dimensions("P F/4 float32 psum") == ["P", "F/4"]
    assert [size_of(word, {"F": 8}) for word in ("16", "F", "F+1", "F/4", "N")] == [16, 8, 9, 2, None]
    words = {"src": "P F bfloat16", "dst": "4 F/2 psum", "name": "it"}
    monkeypatch.setattr("tests.conformance.legal.declared", {"tensor_copy": words}.get)
    call = legal(REGISTRY["tensor_copy"], dtypes.float32)
    src, dst = call.tensors["src"], call.tensors["dst"]
    assert (src.dtype, dst.dtype, dst.memory) == (dtypes.bfloat16, dtypes.float32, MemoryRegion.psum)
    assert dst.shape == (4, src.shape[1] // 2) and call.others == {"name": "it"}


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("name", NAMES)
def test_legal_calls_run_alike_planned_and_eager(name: str, generation: str) -> None:
    if not exists(name, generation):
        assert REGISTRY[name].mnemonic in str(refused(usual(name), generation))
        return
    kinds = accepted(name, generation)
    for dtype in kinds if LONG or generation == GENERATIONS[-1] else kinds[::4]:
        call = legal(REGISTRY[name], dtype)
        kernel, arrays = call.kernel(), call.arrays()
        planned = nki.simulate(kernel, target=generation)(arrays)
        eager = nki.simulate(kernel, target=generation, eager=True)(arrays)
        assert planned or REGISTRY[name].states, "nothing is written, in memory or registers"
        for one, other in zip(planned, eager, strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape), dtype
            assert one.tobytes() == other.tobytes(), dtype


@pytest.mark.parametrize("name", sorted({name for name, _ in NOT_YET}))
def test_dtypes_that_come_later(name: str) -> None:
    for (name, dtype), first in NOT_YET.items():
        for generation in GENERATIONS[: GENERATIONS.index(first)]:
            error = refused(legal(REGISTRY[name], dtypes.as_dtype(dtype)), generation)
            assert dtype in str(error) and first in str(error)


@pytest.mark.parametrize("name", NAMES)
def test_wrong_dtypes_are_refused(name: str) -> None:
    call = usual(name)
    for operand in REGISTRY[name].operands:
        for dtype in dtypes.ALL:
            if operand.name in call.tensors and dtype not in operand.dtypes:
                error = refused(call.having(operand.name, dtype=dtype))
                assert isinstance(error, errors.DtypeError), error
                assert f"`{operand.name}" in str(error) and str(dtype) in str(error)


@pytest.mark.parametrize("name", NAMES)
def test_wrong_memories_are_refused(name: str) -> None:
    call = usual(name)
    for operand in REGISTRY[name].operands:
        for memory in MemoryRegion:
            if operand.name in call.tensors and memory not in operand.memories:
                error = refused(call.having(operand.name, memory=memory))
                assert isinstance(error, (errors.MemoryError_, errors.EngineError)), error
                assert f"`{operand.name}" in str(error)


def limits() -> Iterator[tuple[str, str, str]]:
    """(instruction, letter, generation) of every limit of a free dimension; partitions have a test of their own."""
    for name in NAMES:
        cls = REGISTRY[name]
        for letter in cls.limits:
            places = [
                axis
                for o in cls.operands
                for axis, dim in enumerate(o.dims)
                if dim == letter and not o.optional
            ]
            if places and 0 not in places:
                yield from (
                    (name, letter, generation) for generation in GENERATIONS if exists(name, generation)
                )


@pytest.mark.parametrize(("name", "letter", "generation"), [*limits()])
def test_one_step_over_a_limit_is_refused(name: str, letter: str, generation: str) -> None:
    most = getattr(get_target(generation), REGISTRY[name].limits[letter])
    fits = usual(name, **{letter: most})
    fits.kernel().ir(fits.arrays(), target=generation)
    call = usual(name, **{letter: most + 1})
    for operand, spec in call.tensors.items():  # a tile with too many partitions could not be made
        call = call.having(operand, shape=(min(spec.shape[0], get_target(generation).pmax), *spec.shape[1:]))
    error = refused(call, generation)
    assert isinstance(error, errors.NkiValidationError)
    assert str(most) in str(error) and str(most + 1) in str(error)


@pytest.mark.parametrize("name", NAMES)
def test_one_partition_too_many_is_refused(name: str) -> None:
    """The tile itself cannot be made."""
    most = get_target("trn3").pmax
    for operand, spec in usual(name).tensors.items():
        if spec.memory.on_chip:
            call = usual(name).having(operand, shape=(most + 1, *spec.shape[1:]))
            with pytest.raises(errors.PartitionLimitError, match=f"{most + 1}.*{most}"):
                call.kernel().ir(call.arrays(), target="trn3")


def shared_letters(name: str) -> Iterator[tuple[str, int]]:
    """(operand, axis) whose size is that of another operand too."""
    cls, call = REGISTRY[name], usual(name)
    present = [o for o in cls.operands if o.name in call.tensors and not o.many]
    letters = [letter for operand in present for letter in operand.dims if letter.isalpha()]
    for operand in present:
        for axis, letter in enumerate(operand.dims):
            if len(operand.dims) == 2 and letters.count(letter) > 1 and operand.name not in tied(name):
                yield operand.name, axis


@pytest.mark.parametrize("name", NAMES)
def test_sizes_that_disagree_are_refused(name: str) -> None:
    for operand, axis in shared_letters(name):
        shape = list(usual(name).tensors[operand].shape)
        shape[axis] += 1
        error = refused(usual(name).having(operand, shape=tuple(shape)))
        assert isinstance(error, errors.NkiValidationError) and operand in str(error)
        assert str(shape[axis]) in str(error)


@pytest.mark.parametrize("name", NAMES)
def test_unknown_and_missing_arguments_are_refused(name: str) -> None:
    call = usual(name)
    with pytest.raises(errors.UnknownKeywordError, match="unexpected keyword argument 'quux'"):
        Call(name, call.tensors, {**call.others, "quux": 1}).kernel().ir(call.arrays(), target="trn3")
    for missing in [*call.tensors, *call.others]:
        parameter = REGISTRY[name].parameters[missing]
        if parameter.default is REQUIRED:
            kept = [{k: v for k, v in group.items() if k != missing} for group in (call.tensors, call.others)]
            with pytest.raises(errors.ArgumentError, match=missing):
                Call(name, kept[0], kept[1]).kernel().ir(call.arrays(), target="trn3")


def test_every_class_is_swept_or_named() -> None:
    inside = {name for name, cls in REGISTRY.items() if cls.__module__.startswith("nki.")}
    assert inside == set(NAMES) | set(ELSEWHERE)
    assert np.all([usual(name).tensors for name in NAMES])
