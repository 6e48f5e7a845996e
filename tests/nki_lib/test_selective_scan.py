"""Values and gradients of the selective scan: against float64, position by position, and Mamba of transformers."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn import functional  # noqa: E402

from nki_lib.sequence.selective_scan import launches  # noqa: E402
from nki_lib.sequence.selective_scan.api import selective_scan  # noqa: E402
from tests.nki_lib.format_bounds import DTYPES, stored, wide  # noqa: E402
from tests.nki_lib.sequence_bounds import ScanError  # noqa: E402
from tests.nki_lib.test_softmax import LAYOUTS, random  # noqa: E402

NAMES = ("u", "delta", "A", "B", "C", "D", "z", "delta_bias")
ALL = {"D": True, "z": True, "bias": True, "softplus": True}


def arguments(sizes: Any, dtype: Any = torch.float32, vectors: Any = torch.float32, **has: bool) -> list[Any]:
    """b, d, l, n -> all arguments; those that `has` does not name are None. Without softplus, steps are positive."""
    b, d, length, n = sizes
    u, B, C = (
        random(b, *shape, dtype=dtype, spread=1.0) for shape in ((d, length), (n, length), (n, length))
    )
    delta = random(b, d, length, spread=1.0).roll(1)
    delta = (delta if has.get("softplus") else delta.abs() / 4).to(dtype)
    A = -random(d, n, spread=1.0).abs() - 0.1
    D = random(d, dtype=vectors) if has.get("D") else None
    z = random(b, d, length, dtype=dtype).flip(-1) if has.get("z") else None
    bias = random(d, dtype=vectors, spread=0.5).abs() if has.get("bias") else None
    return [u, delta, A, B, C, D, z, bias, has.get("softplus", False)]


def check(call: list[Any]) -> Tensor:
    """Run the operator, compare with float64 within the derived bound, return the result."""
    y, state = selective_scan(*call, return_last_state=True)
    u, softplus = call[0], call[-1]
    exact = ScanError(*(wide(t) for t in call[:-1]), softplus)
    assert y.shape == u.shape and y.dtype == u.dtype and y.is_contiguous()
    assert state.dtype == torch.float32 and state.shape == exact.state.shape
    assert ((y.double() - exact.y).abs() <= stored(exact.y, exact.error, u.dtype)).all()
    assert ((state.double() - exact.state).abs() <= exact.state_error + 1e-37).all()
    return y


@given(data=st.data(), layout=st.sampled_from(LAYOUTS))
def test_any_call(data: st.DataObject, layout: Any) -> None:
    sizes = [
        data.draw(st.sampled_from(s)) for s in ((0, 1, 2), (0, 1, 5, 130), (0, 1, 7, 70, 300), (1, 3, 16))
    ]
    dtype = data.draw(st.sampled_from(DTYPES))
    has = {name: data.draw(st.booleans()) for name in ALL}
    call = arguments(sizes, dtype, data.draw(st.sampled_from((dtype, torch.float32))), **has)
    check([layout(t) if isinstance(t, Tensor) and t.dim() == 3 else t for t in call])


@pytest.mark.parametrize("sizes", [(1, 3, 1100, 2), (1, 4, 100, 128), (1, 2, 130, 100)], ids=str)
def test_many_parts_and_many_states(sizes: Any) -> None:
    check(arguments(sizes, torch.bfloat16, **ALL))


def test_many_channels_go_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    call = arguments((2, 20, 9, 3), **ALL)
    tensors = [t.requires_grad_() for t in call[:-1]]
    whole = selective_scan(*call)
    grads = torch.autograd.grad(whole.sum(), tensors)
    monkeypatch.setattr(launches, "CHANNELS", 8)
    pieces = selective_scan(*call)
    assert torch.equal(pieces, whole)
    for mine, true in zip(torch.autograd.grad(pieces.sum(), tensors), grads):
        assert torch.allclose(mine, true, rtol=1e-5, atol=1e-5)


def test_as_mamba_of_transformers() -> None:
    """Which rounds y, the skip and the gate apart, and has the states in the dtype of u: float32 here."""
    modeling = pytest.importorskip("transformers.models.mamba.modeling_mamba")
    if not hasattr(modeling, "mamba_selective_scan"):
        pytest.skip("this version has no function for the scan")
    call = arguments((2, 6, 50, 16), **ALL)
    expected, state = modeling.mamba_selective_scan(*call[:-1], delta_softplus=True, return_last_state=True)
    y, found = selective_scan(*call, return_last_state=True)
    assert torch.allclose(y, expected, rtol=1e-4, atol=1e-4)
    assert torch.allclose(found, state, rtol=1e-4, atol=1e-4)


def test_softplus_of_large_and_small_steps() -> None:
    call = arguments((1, 4, 60, 3), **ALL)
    call[1] = torch.linspace(-90, 60, 240).reshape(1, 4, 60)
    check(call)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_special_values_stay_in_their_channel(value: float) -> None:
    call = arguments((1, 5, 40, 3), **ALL)
    call[0][0, 2, 11] = value
    y = selective_scan(*call)
    clean, expected = arguments((1, 5, 40, 3), **ALL), ScanError(*(wide(t) for t in call[:-1]), True).y
    others = [0, 1, 3, 4]
    assert torch.equal(y[:, others], selective_scan(*clean)[:, others])
    assert torch.equal(y.isnan(), expected.isnan()) and torch.equal(y.isinf(), expected.isinf())


def magnitudes(tensors: list[Any], softplus: bool, outs: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """The gradients of a scan of the magnitudes of u, B, C, D and the gradients: no two of their terms cancel.

    Steps, decays and gates have their values, but magnitudes for slopes: |A| and 1.1, which bounds silu'.
    """
    u, delta, A, *_, D, z, bias = tensors
    x = delta if bias is None else delta + bias[:, None]
    leaves = [None if t is None else t.detach().abs().requires_grad_() for t in tensors]
    step = functional.softplus(x.detach()) if softplus else x.detach()
    rise = torch.sigmoid(x.detach()) if softplus else torch.ones_like(step)
    moved = leaves[1] - leaves[1].detach()
    moved = moved if bias is None else moved + (leaves[7] - leaves[7].detach())[:, None]
    step = step + rise * moved
    up = leaves[2] - leaves[2].detach()
    state, ys = torch.zeros(u.shape[0], *A.shape, dtype=torch.float64), []
    for t in range(u.shape[2]):
        s, still = step[:, :, t, None], step[:, :, t, None].detach()
        power = still * A.detach() + (s - still) * A.abs().detach() + still * up
        state = torch.exp(power) * state + s * (leaves[3][:, None, :, t] * leaves[0][:, :, t, None])
        ys.append((state * leaves[4][:, None, :, t]).sum(-1))
    y = torch.stack(ys, -1)
    y = y if D is None else y + leaves[5][:, None] * leaves[0]
    if z is not None:
        gate = functional.silu(z.detach()).abs() + 1.1 * (leaves[6] - leaves[6].detach())
        y = y * gate
    wanted = [t for t in leaves if t is not None]
    return torch.autograd.grad([y, state], wanted, [out.abs() for out in outs])


@given(
    sizes=st.tuples(*map(st.sampled_from, ((1, 2), (1, 5, 130), (1, 9, 70), (1, 5)))),
    has=st.fixed_dictionaries(dict.fromkeys(ALL, st.booleans())),
)
def test_gradients(sizes: Any, has: dict[str, bool]) -> None:
    check_gradients(sizes, **has)


@pytest.mark.parametrize("sizes", [(1, 130, 300, 16), (1, 2, 130, 40)], ids=str)
def test_gradients_of_many_parts(sizes: Any) -> None:
    check_gradients(sizes, **ALL)


def check_gradients(sizes: Any, dtype: Any = torch.float32, **has: bool) -> None:
    """Compare all gradients with float64 autograd of the loop over positions, within the derived bound.

    That of z is a product with the ungated y, which was stored in the type of u.
    """
    call = arguments(sizes, dtype, **has)
    softplus, tensors = call.pop(), [t for t in call if t is not None]
    for tensor in tensors:
        tensor.requires_grad_()
    outs = selective_scan(*call, softplus, return_last_state=True)
    grads = tuple(random(*out.shape, dtype=out.dtype, spread=1.0) for out in outs)
    found = torch.autograd.grad(outs, tensors, grads)
    wides = [None if t is None else wide(t).requires_grad_() for t in call]
    given = [t for t in wides if t is not None]
    scan = ScanError(*wides, softplus)
    exact = torch.autograd.grad((scan.y, scan.state), given, [g.double() for g in grads])
    sizes_of = magnitudes(wides, softplus, tuple(g.double() for g in grads))
    allowed = scan.of_gradients(call[0].shape, sizes[3])
    for mine, tensor, true, size in zip(found, tensors, exact, sizes_of):
        assert mine.dtype == tensor.dtype and mine.shape == true.shape
        kept = torch.finfo(dtype).eps / 2 * true.abs() if tensor is call[6] else 0.0
        assert ((mine.double() - true).abs() <= stored(true, allowed * size + kept, mine.dtype)).all()


def test_gradients_are_the_same_bits_at_every_run() -> None:
    call = arguments((2, 130, 40, 5), torch.bfloat16, torch.float32, **ALL)
    tensors = [t.requires_grad_() for t in call[:-1]]
    runs = [torch.autograd.grad(selective_scan(*call).sum(), tensors) for _ in range(2)]
    assert all(torch.equal(a, b) for a, b in zip(*runs))


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
def test_gradients_in_narrow_types(dtype: Any) -> None:
    check_gradients((2, 130, 40, 5), dtype, **ALL)
