"""PyTorch tensors as arguments: every type and layout, updated in place, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.nki.kernels import down, f32, up

X = np.arange(12, dtype=f32).reshape(3, 4)


@nki.jit
def through(x):
    return down(up(x))


@nki.jit
def zeroed(x):
    nisa.dma_copy(dst=x, src=nl.zeros(x.shape, dtype=x.dtype, buffer=nl.sbuf))
    return x


both = pytest.mark.parametrize("eager", [False, True])


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch")


TORCH_DTYPES = (
    "float32",
    "float16",
    "bfloat16",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
    "float8_e4m3fn",
    "float8_e5m2",
)


@both
@pytest.mark.parametrize("name", TORCH_DTYPES)
def test_torch_in_torch_out(torch: Any, name: str, eager: bool) -> None:
    tensor = torch.arange(12).reshape(3, 4).to(getattr(torch, name))
    found = nki.simulate(through, eager=eager)(tensor)
    assert isinstance(found, torch.Tensor)
    assert found.dtype == tensor.dtype
    assert torch.equal(found.view(torch.uint8), tensor.view(torch.uint8))


@both
def test_torch_layouts(torch: Any, eager: bool) -> None:
    x = torch.arange(12.0).reshape(3, 4)
    for tensor in (x.t(), x[:, 1:3], x[:1].expand(3, 4), x.requires_grad_(), torch.nn.Parameter(x)):
        found = nki.simulate(through, eager=eager)(tensor)
        assert torch.equal(found, tensor.detach())
        assert not found.requires_grad


@both
def test_torch_argument_is_updated_in_place(torch: Any, eager: bool) -> None:
    run = nki.simulate(zeroed, eager=eager)
    base = torch.ones(4, 6, dtype=torch.bfloat16)
    view = base[1:3, ::2]
    assert run(view) is view
    assert base.sum() == 24 - 6
    for leaf in (torch.ones(2, 2, requires_grad=True), torch.nn.Parameter(torch.ones(2, 2))):
        assert run(leaf) is leaf
        assert not leaf.detach().any()


def test_torch_tensors_that_cannot_be_written(torch: Any) -> None:
    with pytest.raises(errors.ArgumentError, match="expanded"):
        zeroed(torch.ones(1, 4).expand(3, 4))


@pytest.mark.parametrize("kind", ["float64", "int64", "complex64"])
def test_torch_types_that_nki_does_not_have(torch: Any, kind: str) -> None:
    with pytest.raises(TypeError, match=kind):
        through(torch.ones(2, 2, dtype=getattr(torch, kind)))


def test_torch_tensors_elsewhere(torch: Any) -> None:
    for tensor in (torch.ones(2, 2, device="meta"), torch.ones(2, 2).to_sparse()):
        with pytest.raises(errors.ArgumentError, match="`x`"):
            through(tensor)


def test_mixed_frameworks_give_torch(torch: Any) -> None:
    @nki.jit
    def kernel(x, y):
        return down(up(x)), down(up(y)), y

    first, second, third = kernel(torch.ones(2, 2), X)
    assert isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor)
    assert third is X
