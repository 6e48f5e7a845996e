"""Wrong calls raise errors of ours and nothing else: legal ones with arguments exchanged, left out, or out of range.

Half of the calls are of instructions, half of views of tensors. What is still legal after the change is fine.
"""

from __future__ import annotations

import math
import os
from types import MethodType
from typing import Any

import numpy as np
import pytest

import nki.isa as nisa
import nki.language as nl
from nki import enums
from nki.dtypes import ALL
from nki.enums import MemoryRegion
from nki.errors import NkiError
from nki.ir.builder import Builder
from nki.ir.instruction import Instruction
from nki.ir.program import Access
from nki.registers import VirtualRegister
from nki.target import get_target
from nki.tensor import NkiTensor
from tests.property.programs import Maker

QUICK = 1500
COUNT = int(os.environ.get("NKI_FUZZ_COUNT", QUICK))
PARTS = 10 if COUNT > QUICK else 1
BATCH = 50
"""Calls on the tensors of one program."""

JUNK: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 127, 129, 2**31, 2**63, -(2**70), 10**30, 0.5, -0.0, 1e300),
    *(math.nan, math.inf, -math.inf, 1j, "", "x", "float32", "\x00\udc80", b"bytes", (), [], {}, set()),
    *(
        (0,),
        (1, 2),
        (-1, 3),
        ("a",),
        (None,),
        [[1, 2], [3]],
        [[1, 0]],
        [["a", 1]],
        {"a": 1},
        [None],
        ((((),),),),
    ),
    *(
        (2**63, 2),
        (0.5, 1),
        (True, False),
        [[2**70, 2**70]],
        [(1, 2, 3)],
        ...,
        slice(None),
        slice(3, 1),
        object,
    ),
    *(
        object(),
        int,
        float,
        len,
        lambda: 0,
        range(3),
        range(0),
        NotImplemented,
        np,
        nl,
        nisa.dma_copy,
        iter(()),
    ),
    *(
        np.float32(1),
        np.float64(math.nan),
        np.int64(7),
        np.bool_(True),
        np.zeros((2, 2)),
        np.zeros(0),
        np.array(3),
    ),
    *(
        np.array("s"),
        np.array([1, 2]),
        np.datetime64("2020-01-01"),
        np.complex64(1),
        np.dtype("f4"),
        np.float32,
    ),
    *(nl.add, nl.exp, nl.sbuf, nl.psum, nl.tile_size, nl.ds(0, 2), nl.ds(-1, 0), nl.ds("a", None)),
    *(
        member
        for e in vars(enums).values()
        if isinstance(e, type) and issubclass(e, enums.Enum)
        for member in e
    ),
    *ALL,
)
ARGUMENTS = {
    **dict.fromkeys(("permute", "expand_dim", "squeeze_dim", "reshape"), (1,)),
    **dict.fromkeys(("view", "reinterpret_cast", "__getitem__"), (1,)),
    **dict.fromkeys(
        ("broadcast", "reshape_dim", "flatten_dims", "select", "vector_select", "__setitem__"), (2,)
    ),
    **{"slice": (3, 4), "indirect": (1, 2), "ap": (), "rearrange": ()},
}
"""How many arguments each view takes: another number is refused by Python, in a kernel as an error of the user."""

SMALL = (-2, -1, 0, 1, 2, 3, 4, 16, 64)


class Wrong:
    """Makes wrong calls on the tensors of one small program."""

    def __init__(self, seed: int) -> None:
        self.maker = Maker(seed)
        self.maker.make(0)
        self.chance = self.maker.chance
        self.pick = self.chance.choice
        self.tensors = [NkiTensor._of(Access.whole(b)) for b in (*self.maker.pool, *self.maker.fixed)]
        self.tensors.append(self.foreign())

    def foreign(self) -> NkiTensor:
        """A tensor of another kernel, on another target."""
        builder = Builder("other", get_target("trn1"))
        buffer = builder.buffer((16, 16), ALL[0], MemoryRegion.sbuf, label="x0")
        return NkiTensor._of(Access.whole(buffer))

    def junk(self) -> Any:
        """Anything: of the wrong type, a tensor of any kind, a register."""
        found = self.pick([self.pick(JUNK), self.pick(JUNK), self.pick(SMALL), self.tensor, self.register])
        if isinstance(found, MethodType):
            return found()
        return [found] if self.chance.random() < 0.05 else found

    def tensor(self) -> NkiTensor:
        return self.pick(self.tensors)

    def register(self) -> VirtualRegister:
        return VirtualRegister(self.pick(self.maker.places))

    def call(self) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """An instruction with some arguments changed."""
        cls, given = self.right_call()
        args: list[Any] = []
        for _ in range(self.pick([1, 1, 1, 2])):
            names = list(given) or ["x"]
            name, style = self.pick(names), self.chance.randrange(10)
            if style == 0:
                given.pop(name, None)
            elif style == 1:
                given[self.pick(["dest", "mask", name + "s", "self", "args", "", "é"])] = self.junk()
            elif style == 2:
                args.append(self.junk())
            elif style < 5 and isinstance(given.get(name), NkiTensor):
                given[name] = self.wrong_view(given[name])
            else:
                given[name] = self.junk()
        return getattr(nisa, cls.mnemonic), tuple(args), given

    def right_call(self) -> tuple[type[Instruction], dict[str, Any]]:
        """A legal call, if one is found soon."""
        cls = self.pick(self.maker.classes)
        given: dict[str, Any] = {}
        for _ in range(10):
            values = self.maker.values(cls) or {}
            given = {name: self.maker.player.value(value) for name, value in values.items()}
            try:
                getattr(nisa, cls.mnemonic)(**given)
                break
            except NkiError:
                continue
        return cls, given

    def wrong_view(self, tensor: NkiTensor) -> Any:
        """Another window: a slice, another dtype, turned around, or what a view of anything gives."""
        try:
            function, args, kwargs = self.view(tensor)
            made = function(*args, **kwargs)
        except NkiError:
            made = None
        return tensor if made is None else made

    def view(self, tensor: NkiTensor) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """A view of a tensor with random arguments, some of them sensible."""
        name = self.pick([*ARGUMENTS])
        kwargs: dict[str, Any] = {}
        if name == "ap":
            args: list[Any] = [
                [[self.pick(SMALL), self.pick(SMALL)] for _ in range(self.chance.randint(1, 4))]
            ]
            options = ("offset", "scalar_offset", "vector_offset", "indirect_dim", "dtype")
            kwargs = {option: self.sensible() for option in options if self.chance.random() < 0.3}
        elif name == "rearrange":
            words = [self.pick(["p", "h", "w", ("h", "w"), ("p", "h"), 1]) for _ in range(3)]
            args = [tuple(words), tuple(self.chance.sample(words, 3)), {"h": self.sensible()}]
        elif name in ("permute", "reshape", "__getitem__") and self.chance.random() < 0.7:
            args = [tuple(self.sensible() for _ in range(self.chance.randint(0, 4)))]
        else:
            args = [self.sensible() for _ in range(self.pick(ARGUMENTS[name]))]
        if args and self.chance.random() < 0.4:
            args[self.chance.randrange(len(args))] = self.junk()
        return getattr(tensor, name), tuple(args), kwargs

    def sensible(self) -> Any:
        """A number, a dtype, a slice, a register or a tensor."""
        made = self.pick(
            [slice(self.pick(SMALL), self.pick(SMALL), self.pick(SMALL)), nl.ds(0, self.pick(SMALL))]
        )
        return self.pick([*SMALL, made, self.pick(ALL), self.register(), self.tensor(), ..., None])


def described(function: Any, args: Any, kwargs: Any) -> str:
    return f"{function!r:.200}(*{args!r:.300}, **{kwargs!r:.900})"


def check(seed: int) -> int:
    """A batch of calls; returns how many were refused."""
    refused = 0
    wrong = Wrong(seed)
    with wrong.maker.builder:
        for number in range(BATCH):
            function, args, kwargs = wrong.call() if number % 2 else wrong.view(wrong.tensor())
            try:
                function(*args, **kwargs)
            except NkiError as error:
                refused += bool(str(error) and error.explain())
            except Exception as error:
                raise AssertionError(f"seed {seed}.{number}: {described(function, args, kwargs)}") from error
    return refused


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_calls(part: int) -> None:
    seeds = range(part, COUNT // BATCH, PARTS)
    refused = sum(check(seed) for seed in seeds)
    assert refused > len(seeds) * BATCH / 2


def test_junk_is_reproducible() -> None:
    """One seed makes one call, so that a failure can be looked at again."""
    first, second = Wrong(5).call(), Wrong(5).call()
    assert first[0] is second[0] and list(first[2]) == list(second[2])
