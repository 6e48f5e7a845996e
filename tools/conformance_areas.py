"""What docs/conformance.md says about functions of `nki.language`, tensor methods and launching, area by area.

Instructions describe themselves in their classes. A function of `nl` is a short recipe over them, so what is checked
is what its instructions check; an area adds what the recipes of one module check themselves, the rules they follow
(numbers of the registry in tests/conformance) and where that is tested. A test makes sure that no name is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

EVERY = "any"
UNPACKED = "any but the packed ones"
NUMBERS = "floats and integers"


@dataclass(frozen=True)
class Area:
    """The functions of one module. `tests` are files under tests/."""

    dtypes: str
    checked: str
    rules: tuple[int, ...]
    tests: tuple[str, ...]


_SWEEP = "conformance/test_functions.py"

LANGUAGE: dict[str, Area] = {
    "unary": Area(UNPACKED, "one tile on chip", (2, 20, 21, 25, 84, 85, 157), ("language/test_unary.py", _SWEEP)),
    "binary": Area(
        f"{UNPACKED}; bit operators: integers",
        "shapes equal or broadcast, one tile at least",
        (2, 9, 11, 13, 19, 21, 22, 53, 156, 157, 158),
        ("language/test_binary.py", _SWEEP),
    ),
    "ranges": Area("no tensor", "integers known while staging", (28, 130), ("language/test_environment.py",)),
    "reductions": Area(
        UNPACKED, "the last free axes, not axis 0", (78, 82, 188), ("language/test_reductions.py", _SWEEP)
    ),
    "tokens": Area("no tensor", "only usable as an operator", (83, 89, 187, 189), ("language/test_environment.py",)),
    "selection": Area(UNPACKED, "shapes broadcast", (31, 179, 191), ("language/test_selection.py",)),
    "rounding": Area(NUMBERS, "shapes equal or broadcast", (3, 157), ("language/test_rounding.py", _SWEEP)),
    "trigonometry": Area(UNPACKED, "one tile on chip", (86,), ("language/test_trigonometry.py", _SWEEP)),
    "device_print": Area(EVERY, "prefix is text, a tensor to print", (150,), ("language/test_device_print.py",)),
    "random_numbers": Area(
        f"rand, dropout: {NUMBERS}; seed: 32 bits",
        "seed of one element, probability a number or column",
        (121, 122, 123),
        ("language/test_random_numbers.py",),
    ),
    "loops": Area(
        "no tensor; registers",
        "bounds are integers or registers, steps positive constants, results, scopes, no Python value",
        (125, 126, 127, 128, 129),
        ("language/test_loops.py", "frontend/test_device_loops.py", "conformance/test_rules_device_loops.py"),
    ),
    "creation": Area(
        EVERY,
        "shape, dtype, memory, partitions, address, class of the fill",
        (24, 26, 47, 48, 50, 144),
        ("language/test_creation.py", "conformance/test_rules_memories.py"),
    ),
    "gathering": Area(UNPACKED, "uint32 indices in range", (105,), ("isa/test_nc_n_gather.py",)),
    "memory": Area("no tensor", "read-only", (49, 55), ("language/test_environment.py",)),
    "transfer": Area(
        EVERY, "HBM on one side, SBUF on the other, equal shapes", (16, 157, 159), ("language/test_transfer.py",)
    ),
    "linear": Area(
        "matmul: floats; transpose: any but the packed ones",
        "contractions agree, sizes of the PE array",
        (58, 67, 68, 69, 159, 184),
        ("language/test_linear.py",),
    ),
    "program": Area("no tensor", "inside a kernel, one axis", (131, 136), ("language/test_environment.py",)),
    "normalization": Area("floats", "axes are the last ones", (2, 21, 82), ("language/test_normalization.py",)),
    "constants": Area(
        "floats and integers up to 32 bits", "an array or a path, sizes", (57, 155, 183),
        ("conformance/test_rules_memories.py", "conformance/test_rules_calls.py"),
    ),
}  # fmt: skip
"""Module of `nki.language` -> its area. Dtypes, memories and classes stand among the other names."""

SINCE: dict[str, str] = {"abs_max": "trn3", "abs_min": "trn3"}
"""Functions of `nki.language` that only later generations have, because no older instruction does it."""

_VIEWS = ("nki/test_tensor_views.py", "nki/test_tensor.py")
_INDICES = ("conformance/test_rules_indices.py", "isa/test_dma_copy__dynamic.py")

METHODS: dict[str, Area] = {
    "ap": Area(
        EVERY, "bounds of the storage, partition step, one dynamic index", (33, 34, 35, 38, 39, 40, 41),
        _VIEWS + _INDICES,
    ),
    "broadcast": Area(EVERY, "a free dimension of size 1", (30, 31), _VIEWS),
    "expand_dim": Area(EVERY, "a free dimension", (30,), _VIEWS),
    "flatten_dims": Area(EVERY, "neighbours lie one behind the other", (30,), _VIEWS),
    "get_pattern": Area(EVERY, "a static view", (44,), _VIEWS),
    "indirect": Area(EVERY, "trn3, 32-bit indices, operands that take it, bounds when run", (42, 43), _INDICES),
    "is_contiguous": Area(EVERY, "nothing to check", (31, 44), _VIEWS),
    "is_indirect": Area(EVERY, "nothing to check", (42,), _INDICES),
    "numpy": Area(EVERY, "values exist in eager mode only", (151,), ("nki/test_eager.py",)),
    "permute": Area(EVERY, "a permutation that keeps the partitions", (30,), _VIEWS),
    "rearrange": Area(EVERY, "the pattern, sizes, partitions", (30,), _VIEWS),
    "reinterpret_cast": Area(EVERY, "a contiguous last dimension, whole elements", (32,), _VIEWS),
    "reshape": Area(EVERY, "element count, partitions, no copy", (30, 171), _VIEWS),
    "reshape_dim": Area(EVERY, "sizes of one free dimension", (30,), _VIEWS),
    "select": Area(EVERY, "index in range, register or 32-bit tensor", (27, 41, 180), _VIEWS + _INDICES),
    "slice": Area(EVERY, "0 <= start < end <= size, step >= 1", (28, 180), _VIEWS),
    "squeeze_dim": Area(EVERY, "a free dimension of size 1", (30,), _VIEWS),
    "vector_select": Area(EVERY, "HBM, dimension 0, 32-bit indices, bounds when run", (39, 41), _INDICES),
    "view": Area(EVERY, "a contiguous last dimension, whole elements", (32,), _VIEWS),
    "[...]": Area(EVERY, "kinds, ranges and number of subscripts", (26, 27, 28, 29, 180), _VIEWS),
    "[...] = value": Area(EVERY, "shapes, memories", (164,), ("language/test_transfer.py",)),
}  # fmt: skip
"""Method of `NkiTensor` -> its area."""

CALLS: dict[str, Area] = {
    "nki.jit": Area("no tensor", "keywords of older releases", (140, 147), ("conformance/test_rules_calls.py",)),
    "kernel(...), nki.simulate": Area(
        "any but 64-bit and complex ones", "names, frameworks, layouts, write-back", (140, 141, 142, 148),
        ("nki/test_arguments.py", "public_cases/test_calls.py"),
    ),
    "kernel[n]": Area("any", "the number of cores", (131, 132, 135, 192), ("conformance/test_rules_cores.py",)),
    "kernel.with_schedule, NkiInstruction.depends_on": Area(
        "no tensor", "names and handles", (149,), ("conformance/test_rules_calls.py",)
    ),
    "nki.typing": Area("no tensor", "nothing to check", (152, 165), ("nki/test_tensor.py",)),
    "nl.NKIObject": Area("no tensor", "constructors", (146,), ("nki/test_tensor.py",)),
    "nl dtypes": Area(
        EVERY, "spellings", (1, 7, 8, 23, 115, 120), ("nki/test_dtypes.py", "nki/test_dtype_conversion.py")
    ),
    "nl memories": Area(EVERY, "no strings", (49, 52, 56, 144), ("language/test_environment.py",)),
    "enumerations of nki.isa": Area("no tensor", "no integers, no strings", (93, 144), ("isa/test_compute.py",)),
    "nki.isa.get_nc_version": Area("no tensor", "nothing to check", (173,), ("isa/test_compute.py",)),
    "numbers": Area(
        EVERY, "nothing to check", (2, 3, 4, 5, 6, 178),
        ("nki/test_dtype_conversion.py", "conformance/test_rules_numbers.py", "conformance/test_elementwise.py"),
    ),
    "ALU operators and activation functions": Area(
        UNPACKED, "their place, generation and engine", (9, 12, 84, 87, 89, 90, 190),
        ("isa/test_alu.py", "isa/test_activation_functions.py"),
    ),
    "engines": Area(
        EVERY, "memories, start partitions", (51, 52, 91, 92, 114), ("conformance/test_rules_engines.py",)
    ),
    "SBUF and PSUM": Area(
        EVERY, "capacity, overlap, reads of what is not written", (37, 47, 49, 54),
        ("passes/test_allocate.py", "passes/test_initialised.py", "public_cases/test_memory.py"),
    ),
    "errors": Area(
        "no tensor", "place, call chain, operand, remedy", (143, 168, 169, 170, 171, 172),
        ("errors/test_each_class.py", "errors/test_places.py", "conformance/test_rules_surroundings.py"),
    ),
    "the language of kernels": Area(
        "no tensor", "constructs that cannot be staged", (142, 145, 147, 151), ("frontend/test_subset.py",)
    ),
    "names of older releases": Area(
        "no tensor", "use of them", (153,), ("conformance/test_rules_calls.py", "language/test_environment.py")
    ),
    "environment variables": Area(
        "no tensor", "names of targets", (173, 174), ("nki/test_target.py", "language/test_environment.py")
    ),
}  # fmt: skip
"""Calling kernels, and names that are no functions of tiles."""
