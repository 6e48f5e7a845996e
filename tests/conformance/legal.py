"""A small legal call of every instruction, derived from its declaration. Tests nothing; `test_registry.py` uses it.

Sizes come from the dimension letters, dtypes and memories from the operands; what the rules of an instruction tie
together (a permuted shape, a count) stands in `TIED`, or is `LEGAL` in its own test file, see `tests/isa/ties.py`. The
call goes through the public function, inside a kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

import nki
import nki.collectives
import nki.isa as nisa
import nki.language as nl
from nki.dtypes import ALL, DType, as_dtype
from nki.enums import MemoryRegion
from nki.errors import NkiError
from nki.ir.instruction import REGISTRY, Instruction
from nki.ir.operands import REQUIRED, Attribute, Operand, RegisterOperand
from tests.isa.ties import PLACES, declared, dimensions, size_of

F = 8
SIZES = {"P": 16, "K": 32, "M": 2, "N": 4, "F": F}

ELSEWHERE = {
    "core_barrier": "needs two cores: test_rules_cores.py",
    "sendrecv": "needs two cores: test_rules_cores.py",
    "device_print": "prints: tests/language/test_device_print.py",
    **{name: "has no tensor, or one word: tests/isa" for name in REGISTRY if name.startswith("register_")},
    **{
        name: "reads metadata or runs in a ring: tests/collectives"
        for name in REGISTRY
        if "_v" in name or "implicit" in name
    },
    "rank_id": "has no operand: tests/collectives",
}
"""Instructions that the sweep leaves out, and where they are tested instead."""

GROUP = nki.collectives.ReplicaGroup([[0]])
TIED: dict[str, dict[str, Any]] = {
    "affine_select": {"pattern": [[1, F]], "cmp_op": nl.equal},
    "all_gather": {"replica_group": GROUP, "collective_dim": 0},
    "all_reduce": {"replica_group": GROUP},
    "all_to_all": {"replica_group": GROUP, "collective_dim": 0},
    "bn_aggr": {"data": "P 6"},
    "collective_permute": {"source_target_pairs": [[0, 0]]},
    "bn_stats": {"dst": "P 6"},
    "dma_transpose": {"src": "P F", "dst": "F P"},
    "iota": {"pattern": [[1, F]]},
    "local_gather": {"src_buffer": "P F", "index": "P 1", "dst": "P 16"},
    "nc_matmul": {"dst": "M N float32"},
    "nc_matmul_mx": {"dst": "M N", "stationary_scale": "4 M", "moving_scale": "4 N"},
    "nc_n_gather": {"data": "P F"},
    "nc_stream_shuffle": {"src": "32 F", "dst": "32 F", "shuffle_mask": [31, *range(31)]},
    "nc_transpose": {"data": "P F", "dst": "F P psum"},
    "nonzero_with_count": {"src": "P F", "dst": "P F+1"},
    "quantize_mx": {"src": "K F", "dst": "K F/4", "dst_scale": "4 F/4"},
    "rand_get_state": {"dst": "P 6"},
    "rand_set_state": {"src_seeds": "P 6"},
    "reduce_scatter": {"replica_group": GROUP, "collective_dim": 0},
    "sequence_bounds": {"segment_ids": "1 F", "dst": "1 2 F"},
    "memset": {"value": 0},
    "rand2": {"min": 0.0, "max": 1.0},
    "set_rng_seed": {"src_seeds": "1 1"},
    "tensor_partition_reduce": {"data": "P F", "dst": "1 F"},
    "tensor_reduce": {"data": "P F", "dst": "P 1", "axis": 1},
    "topk": {"src": "P 1", "val_dst": "P M", "idx_dst": "P M", "n": F},
    "activate2": {"op": nl.copy, "op0": nl.multiply, "op1": nl.add},
}
_CANDIDATES = (nl.add, nl.copy, nl.greater_equal, nl.multiply, 1, True, [[1, F]], "text")


@dataclass(frozen=True)
class Spec:
    """One tensor operand of a call."""

    shape: tuple[int, ...]
    dtype: DType
    memory: MemoryRegion
    direction: str
    listed: bool = False


@dataclass(frozen=True)
class Call:
    """A call of an instruction: its tensors and its other arguments."""

    name: str
    tensors: dict[str, Spec]
    others: dict[str, Any] = field(default_factory=dict)

    def having(self, operand: str, **changes: Any) -> Call:
        """The call with one tensor changed."""
        return replace(self, tensors={**self.tensors, operand: replace(self.tensors[operand], **changes)})

    @property
    def function(self) -> Any:
        """The public function."""
        return getattr(nisa, self.name, None) or getattr(nki.collectives, self.name)

    def kernel(self) -> Any:
        """A kernel of the inputs that makes the call and returns what it wrote."""

        @nki.jit
        def kernel(arrays):
            tensors = {name: _made(spec, arrays.get(name)) for name, spec in self.tensors.items()}
            given = {name: [t] if self.tensors[name].listed else t for name, t in tensors.items()}
            self.function(**given, **self.others)
            return tuple(_out(tensors[name]) for name, spec in self.tensors.items() if spec.direction != "in")

        return kernel

    def arrays(self) -> dict[str, np.ndarray]:
        """What its inputs hold, and the destinations whose old content may matter: small whole numbers, any bits."""
        return {name: content(s.shape, s.dtype) for name, s in self.tensors.items() if s.direction != "out"}


def content(shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Numbers 0 to 3 in turn; of packed types, such bytes."""
    if dtype.kind == "packed":
        count = prod(shape) * dtype.itemsize
        return (np.arange(count) % 4).astype(np.uint8).view(dtype.numpy).reshape(shape)
    return (np.arange(prod(shape)).reshape(shape) % 4).astype(dtype.numpy)


def _made(spec: Spec, array: Any) -> Any:
    """A tensor as the spec says, with the content of an argument."""
    made = nl.ndarray(spec.shape, dtype=spec.dtype, buffer=spec.memory)
    if array is not None:
        staged = (
            made if spec.memory is not nl.psum else nl.ndarray(spec.shape, dtype=spec.dtype, buffer=nl.sbuf)
        )
        nisa.dma_copy(dst=staged, src=array, name="preparation")
        if staged is not made:
            nisa.tensor_copy(dst=made, src=staged, name="preparation")
    return made


def _out(tensor: Any) -> Any:
    """An output with the content of a tensor."""
    if tensor.buffer is nl.psum:
        copy = nl.ndarray(tensor.shape, dtype=tensor.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=copy, src=tensor)
        tensor = copy
    result = nl.ndarray(tensor.shape, dtype=tensor.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=result, src=tensor)
    return result


def first_input(cls: type[Instruction]) -> Operand:
    """The operand whose dtype is swept: the first that is read, else the destination."""
    tensors = [o for o in cls.operands if not o.optional]
    return next((o for o in tensors if o.direction == "in"), tensors[0])


def tied(mnemonic: str) -> dict[str, Any]:
    """What the rules of an instruction tie together."""
    return TIED.get(mnemonic) or declared(mnemonic)


def legal(cls: type[Instruction], dtype: DType, **sizes: int) -> Call:
    """A small call whose first input has this dtype; `sizes` replaces those of some dimension letters."""
    known = tied(cls.mnemonic)
    tensors: dict[str, Spec] = {}
    others: dict[str, Any] = {}
    for name, parameter in cls.parameters.items():
        if isinstance(parameter, Operand):
            if parameter.optional and not parameter.nullable:
                continue
            if parameter.scalar:
                others[name] = known.get(name, 1.0)
            else:
                tensors[name] = _spec(parameter, known.get(name, ""), dtype, {**SIZES, **sizes})
        elif isinstance(parameter, (Attribute, RegisterOperand)) and parameter.default is REQUIRED:
            others[name] = known.get(name) if name in known else _value(parameter)
        elif name in known:
            others[name] = known[name]
    return Call(cls.mnemonic, tensors, others)


def _spec(operand: Operand, words: str, dtype: DType, sizes: dict[str, int]) -> Spec:
    dims = dimensions(words) or (operand.dims if len(operand.dims) > 1 else ("P", "F"))
    fixed = [word for word in words.split() if word in PLACES]
    wanted = [as_dtype(word) for word in fixed if word in ALL]
    kinds = (*wanted, dtype, as_dtype("float32"), *sorted(operand.dtypes))
    memories = (nl.psum,) if "psum" in fixed else (nl.sbuf, nl.psum, nl.shared_hbm)
    return Spec(
        tuple(_size(word, axis, sizes) for axis, word in enumerate(dims)),
        next(kind for kind in kinds if kind in operand.dtypes),
        next(memory for memory in memories if memory in operand.memories),
        operand.direction,
        operand.many,
    )


def _size(word: str, axis: int, sizes: dict[str, int]) -> int:
    """The size of a dimension; letters without one get that of `P` or `F`."""
    found = size_of(word, sizes)
    return sizes["F" if axis else "P"] if found is None else found


def _value(attribute: Any) -> Any:
    for candidate in _CANDIDATES:
        try:
            attribute.kind.convert(candidate)
        except (NkiError, TypeError, ValueError, AttributeError):
            continue
        return candidate
    raise LookupError(
        f"no value for {attribute.name}: give one as LEGAL in the instruction's test, see tests/isa/ties.py"
    )
