"""`NkiTensor`: documented shapes, what is refused and with which words, and the base class of user objects."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from nki import dtypes, errors
from nki.enums import MemoryRegion
from nki.ir.builder import Builder
from nki.ir.program import Access, Buffer
from nki.objects import NKIObject
from nki.target import get_target
from nki.tensor import NkiTensor
from nki.typing import mutable_tensor, tensor
from nki.views import DynamicSlice


def on_chip(*shape):
    return NkiTensor._of(Access.whole(Buffer("acc", shape, dtypes.float32, MemoryRegion.sbuf, label="acc")))


def in_hbm(*shape):
    return NkiTensor._of(Access.whole(Buffer("h", shape, dtypes.float32, MemoryRegion.shared_hbm, label="h")))


def test_attributes():
    t = on_chip(128, 64)
    assert (t.shape, t.strides, t.offset, t.ndim, t.size) == ((128, 64), (64, 1), 0, 2, 8192)
    assert t.dtype == "float32" and t.buffer is MemoryRegion.sbuf and t.name == "acc"
    assert t[:, 3].name == "acc"


def test_documented_subscripts():
    """Rules 27 and 28, from the language guide."""
    t = on_chip(64, 64, 64)
    assert t[0, 0, 10].shape == (1, 1)
    assert t[:, 0].shape == (64, 64)
    assert t[:, 0, 10].shape == (64, 1)
    assert t[0:64, 0, 0:64].shape == (64, 64)
    assert t[:, :, ::2].shape == (64, 64, 32)
    assert t[...].shape == t[:, ...].shape == (64, 64, 64)
    assert t[0, ..., :].shape == (1, 64, 64)
    assert t[0, ...][:, 0:32, :].shape == (1, 32, 64)
    assert t[-1].offset == 63 * 64 * 64
    assert t[:, np.int32(3), np.int64(-1)].offset == 3 * 64 + 63
    assert t[DynamicSlice(8, 4), :, 1].shape == (4, 64)
    h = in_hbm(4, 128, 32)
    assert h[0].shape == (128, 32) and h[0, 1].shape == (32,) and h[0, 1, 2].shape == (1,)
    assert h[..., 0].shape == (4, 128)
    assert t[0:64, :, :].permute((0, 2, 1))[:, 0, :].shape == (64, 64)


@pytest.mark.parametrize(
    ("use", "error", "words"),
    [
        (lambda t: t[128], errors.BoundsError, ["acc", "index 128", "dimension 0", "size 128"]),
        (lambda t: t[:, -65], errors.BoundsError, ["index -65", "dimension 1", "size 64"]),
        (lambda t: t[0:200], errors.BoundsError, ["slice 0:200", "dimension 0", "size 128"]),
        (lambda t: t[:, 5:5], errors.BoundsError, ["empty"]),
        (lambda t: t[:, ::-1], errors.ShapeError, ["step -1"]),
        (lambda t: t[0, 0, 0], errors.BoundsError, ["3 subscripts", "2 dimensions"]),
        (lambda t: t[..., ...], errors.ShapeError, ["only once"]),
        (lambda t: t[:, None], errors.ShapeError, ["None", "expand_dim"]),
        (lambda t: t[:, [1, 2]], errors.ArgumentError, ["list"]),
        (lambda t: t[:, 1.5], errors.ArgumentError, ["float"]),
        (lambda t: t[DynamicSlice(120, 16)], errors.BoundsError, ["nl.ds(120, 16)"]),
        (lambda t: t[t], errors.DtypeError, ["subscript of dimension 0", "float32"]),
        (lambda t: t.slice(1, 4, 80), errors.BoundsError, ["slice 4:80", "size 64"]),
        (lambda t: t.slice(1, 4, 8, 0), errors.ShapeError, ["step 0"]),
        (lambda t: t.select(1, 64), errors.BoundsError, ["index 64"]),
        (lambda t: t.select(1, t), errors.DtypeError, ["`index` holds float32", "int32"]),
        (lambda t: t.permute((1, 0)), errors.ShapeError, ["partition dimension"]),
        (lambda t: t.permute((0, 0)), errors.ShapeError, ["not a permutation"]),
        (lambda t: t.broadcast(0, 4), errors.ShapeError, ["partition dimension"]),
        (lambda t: t.broadcast(1, 4), errors.ShapeError, ["size 64"]),
        (lambda t: t.expand_dim(0), errors.ShapeError, ["partition dimension"]),
        (lambda t: t.squeeze_dim(1), errors.ShapeError, ["cannot be dropped"]),
        (lambda t: t[:, 0].squeeze_dim(1), errors.ShapeError, ["cannot be dropped", "at least 2"]),
        (lambda t: t.reshape_dim(0, (2, 64)), errors.ShapeError, ["partition dimension"]),
        (lambda t: t.reshape_dim(1, (3, -1)), errors.ShapeError, ["cannot be split"]),
        (lambda t: t.reshape((64, 128)), errors.ShapeError, ["partition dimension"]),
        (lambda t: t.reshape((128, 65)), errors.ShapeError, ["8192", "8320"]),
        (lambda t: t.reshape((128, 2, -1)), errors.ShapeError, ["reshape((128, 2, 32))"]),
        (lambda t: t.reshape((128, 2, 2, 2, 2, 4)), errors.ShapeError, ["5 dimensions"]),
        (lambda t: t.flatten_dims(0, 1), errors.ShapeError, ["partition dimension"]),
        (lambda t: t.view("float64"), errors.DtypeError, ["float64"]),
        (lambda t: t[:, ::2].view("uint8"), errors.ShapeError, ["not contiguous"]),
        (lambda t: t[:, 0:3].view("uint8")[:, 1:9].view("float32"), errors.ShapeError, ["whole number"]),
        (lambda t: t.ap([[64, 128], [1, 65]]), errors.BoundsError, ["8192", "0..8191"]),
        (lambda t: t.ap([[64, 64], [1, 65]]), errors.BoundsError, ["next partition"]),
        (lambda t: t.ap([[128, 64], [1, 64]]), errors.ShapeError, ["partition step is 128", "64"]),
        (lambda t: t.ap([64, 128], [1, 64]), errors.ArgumentError, ["one list"]),
        (lambda t: t.ap([[64, 1], [1, 1]], scalar_offset=t), errors.DtypeError, ["scalar_offset"]),
        (lambda t: t.ap([[64, 1], [1, 1]], vector_offset=t), errors.MemoryError_, ["vector_offset"]),
    ],
)
def test_refused_views(use, error, words):
    with pytest.raises(error) as caught:
        use(on_chip(128, 64))
    text = str(caught.value)
    for word in words:
        assert word in text
    assert caught.value.remedy and caught.value.span.file == __file__


def test_allowed_where_the_partition_rule_does_not_bind():
    assert on_chip(128, 64).reshape_dim(0, (128,)).shape == (128, 64)
    h = in_hbm(128, 64)
    assert h.permute((1, 0)).shape == (64, 128)
    assert h.reshape((8192,)).shape == (8192,) and h.flatten_dims(0, 1).shape == (8192,)
    assert h[0:1].broadcast(0, 5).strides == (0, 1)
    assert h.reshape((64, 128)).shape == (64, 128)


@pytest.mark.parametrize(
    ("use", "error", "words"),
    [
        (lambda t: t + 1, errors.OperatorError, ["`+`", "nl.add", "tensor_tensor"]),
        (lambda t: 2.0 * t, errors.OperatorError, ["nl.multiply"]),
        (lambda t: np.ones(3) - t, errors.OperatorError, ["nl.subtract"]),
        (lambda t: -t, errors.OperatorError, ["nl.negative"]),
        (lambda t: t @ t, errors.OperatorError, ["nl.matmul"]),
        (lambda t: t < 3, errors.OperatorError, ["nl.less"]),
        (bool, errors.TruthValueError, ["is not None", "nl.where"]),
        (float, errors.TruthValueError, ["kernel arguments"]),
        (int, errors.TruthValueError, ["register_load"]),
        (len, errors.ShapeError, ["t.shape[0]"]),
        (list, errors.ShapeError, ["t.shape[0]"]),
        (lambda t: 3 in t, errors.ShapeError, ["sequence"]),
        (lambda t: t.numpy(), errors.TruthValueError, ["eager=True"]),
        (np.asarray, errors.TruthValueError, ["eager=True"]),
    ],
)
def test_refused_python(use, error, words):
    with pytest.raises(error) as caught:
        use(on_chip(128, 64))
    for word in words:
        assert word in str(caught.value)


def test_equality_is_structural():
    """So that `tile != None` works, which kernels write for lack of `is not` (rules 145, 146)."""
    t = on_chip(128, 64)
    assert t != None  # noqa: E711
    assert (t == None) is False  # noqa: E711
    assert t == t[...] and t != t[0:64] and hash(t) == hash(t[...]) and t != "acc"
    with Builder("k", get_target("trn2")), pytest.raises(errors.TruthValueError, match=r"nl\.equal"):
        bool(t == 0)


def test_repr_says_how_to_see_values():
    assert "[128, 64] float32 in sbuf" in repr(on_chip(128, 64)) and "eager=True" in repr(on_chip(128, 64))


def test_constructor():
    placeholder = NkiTensor((4, 8), "bfloat16", None, MemoryRegion.shared_hbm, name="x")
    assert placeholder.shape == (4, 8) and placeholder.name == "x" and placeholder.dtype == "bfloat16"
    buffer = Buffer("b", (128, 64), dtypes.float32, MemoryRegion.sbuf)
    bound = NkiTensor((64, 8, 4), dtypes.float32, buffer)
    assert bound.strides == (64, 4, 1)
    with pytest.raises(errors.BoundsError):
        NkiTensor((64, 65), dtypes.float32, buffer)
    with pytest.raises(errors.ArgumentError, match="memory region"):
        NkiTensor((4, 8), "float32", None, "sbuf")
    with pytest.raises(errors.ArgumentError, match="buffer in psum"):
        NkiTensor((4, 8), "float32", buffer, MemoryRegion.psum)
    with pytest.raises(errors.ShapeError, match="zero"):
        NkiTensor((4, 0), "float32", None)


def test_annotations():
    assert tensor[64, 512].shape == (64, 512) and tensor["p", 4].__name__ == "tensor[p, 4]"
    assert issubclass(mutable_tensor[3], tensor) and mutable_tensor[3].shape == (3,)


# NKIObject, rule 146


class Plain(NKIObject):
    x: int
    y: bool = False
    items: list = []

    def __post_init__(self):
        self.double = 2 * (self.x or 0)


@dataclass
class Data(NKIObject):
    x: int
    sizes: list = field(default_factory=list)

    def __call__(self, t):
        return self.x + t


@dataclass(frozen=True)
class Frozen(NKIObject):
    x: int
    name: str = "f"


def test_generated_constructor():
    a = Plain(3, y=True)
    assert (a.x, a.y, a.double) == (3, True, 6)
    assert Plain().x is None
    Plain(1).items.append(4)
    assert Plain(1).items == [], "a default is not shared"
    with pytest.raises(errors.UnknownKeywordError, match="z"):
        Plain(z=1)
    with pytest.raises(errors.ArgumentError, match="multiple"):
        Plain(1, x=2)
    with pytest.raises(errors.ArgumentError, match="3 arguments but 4"):
        Plain(1, 2, 3, 4)
    assert NKIObject(a=1).a == 1
    assert "x=3" in repr(a)


def test_dataclasses():
    assert Data(1)(2) == 3 and Data(1).sizes == []
    assert Frozen(1).name == "f"
    with pytest.raises(AttributeError):
        Frozen(1).x = 2


@pytest.mark.parametrize("make", [Plain, lambda x: Data(x, [x, {"k": (x,)}]), Frozen])
def test_structural_equality_and_hash(make):
    assert make(1) == make(1) and hash(make(1)) == hash(make(1))
    assert make(1) != make(2) and make(1) != 1
    assert len({make(1), make(1), make(2)}) == 2


def test_objects_may_hold_arrays():
    a, b = NKIObject(w=np.arange(3)), NKIObject(w=np.arange(3))
    assert a == b and hash(a) == hash(b) and a != NKIObject(w=np.arange(4))
