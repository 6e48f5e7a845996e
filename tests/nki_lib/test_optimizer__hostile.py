"""What AdamW does where callers are careless: each of these once went wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

import nki_lib  # noqa: E402
from nki import errors  # noqa: E402


@pytest.fixture(params=[torch.bfloat16, torch.float16, torch.float64], ids=str)
def other_default_dtype(request: Any) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield
    torch.set_default_dtype(before)


def four() -> list[Tensor]:
    kind = {"dtype": torch.float32, "device": "cpu"}
    return [torch.ones(4, **kind), torch.ones(4, **kind), torch.zeros(4, **kind), torch.zeros(4, **kind)]


def parameter() -> Any:
    p = nn.Parameter(torch.ones(3, dtype=torch.float32, device="cpu"))
    p.grad = torch.ones(3, dtype=torch.float32, device="cpu")
    return p


def meta(value: float) -> Tensor:
    return torch.tensor(value, device="meta")


def learned(value: float) -> Tensor:
    return torch.tensor(value, requires_grad=True)


WRONG_NUMBERS: list[tuple[str, Any]] = [
    *[(name, meta(1.0)) for name in ("step", "lr", "grad_scale")],
    *[(name, learned(1.0)) for name in ("step", "lr", "grad_scale")],
    *[(name, "x") for name in ("step", "lr", "grad_scale", "betas", "eps", "weight_decay")],
    *[(name, None) for name in ("step", "lr", "betas", "eps", "weight_decay")],
    *[(name, True) for name in ("step", "lr", "grad_scale", "eps", "weight_decay")],
    *[(name, 1e39) for name in ("step", "lr", "grad_scale", "eps", "weight_decay")],
    *[(name, float("nan")) for name in ("step", "lr", "grad_scale", "eps", "weight_decay")],
    *[(name, torch.tensor(float("inf"))) for name in ("step", "lr", "grad_scale")],
    *[(name, torch.tensor(True)) for name in ("step", "lr", "grad_scale")],
    *[(name, torch.tensor(0.1)) for name in ("eps", "weight_decay")],
    ("step", torch.tensor([1.0]).to_sparse()),
    ("lr", torch.tensor(1j)),
    ("lr", [0.1]),
    ("betas", (0.9,)),
    ("betas", (0.9, 0.9, 0.9)),
    ("betas", ("a", 0.9)),
    ("betas", (torch.tensor(0.9), 0.99)),
]


@pytest.mark.parametrize(("name", "value"), WRONG_NUMBERS)
def test_a_number_that_is_none_is_named_and_nothing_is_written(name: str, value: Any) -> None:
    tensors = four()
    with pytest.raises(errors.NkiError, match=f"`{name}`") as found:
        nki_lib.adamw(*tensors, **{"step": 1, name: value})
    assert "allowed:" in str(found.value)
    assert all(torch.equal(mine, before) for mine, before in zip(tensors, four()))


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize(
    "wrong", [None, 3.0, torch.ones(4, requires_grad=True), torch.ones(4, device="meta")], ids=str
)
def test_a_tensor_that_is_none_is_named(place: int, wrong: Any) -> None:
    tensors: list[Any] = four()
    tensors[place] = wrong
    with pytest.raises(errors.NkiError, match=r"adamw: cannot take this `(param|grad|exp_avg|exp_avg_sq)`"):
        nki_lib.adamw(*tensors, 1)


def test_the_operator_itself_refuses_a_number_elsewhere() -> None:
    tensors = four()
    with pytest.raises(errors.ArgumentError, match="`step`"):
        torch.ops.nki_lib.adamw(*tensors, meta(1.0), torch.tensor(0.1))
    assert torch.equal(tensors[0], four()[0])


def test_whole_steps_beyond_64_bits_count() -> None:
    tensors = four()
    nki_lib.adamw(*tensors, 2**70, lr=0.1)
    assert not torch.equal(tensors[0], four()[0])


def test_a_default_device_without_data_changes_nothing() -> None:
    tensors, p = four(), parameter()
    with torch.device("meta"):
        nki_lib.adamw(*tensors, 1, lr=0.1, grad_scale=2.0)
        nki_lib.AdamW([p], lr=0.1).step()
    expected = four()
    nki_lib.adamw(*expected, 1, lr=0.1, grad_scale=2.0)
    assert torch.equal(tensors[0], expected[0]) and not torch.equal(p, torch.ones(3))


@pytest.mark.usefixtures("other_default_dtype")
def test_steps_are_counted_in_float32_whatever_the_default_dtype() -> None:
    ours, theirs = parameter(), parameter()
    optimizers = nki_lib.AdamW([ours], lr=1e-2), torch.optim.AdamW([theirs], lr=1e-2)
    for optimizer, p in zip(optimizers, (ours, theirs)):
        optimizer.step()
        optimizer.state[p]["step"].fill_(256)
        optimizer.step()
        assert optimizer.state[p]["step"].item() == (
            257 if optimizer is optimizers[0] else pytest.approx(257, rel=0.01)
        )
    assert optimizers[0].state[ours]["step"].dtype == torch.float32


def shared_memory() -> dict[str, Callable[[], tuple[Tensor, ...]]]:
    p, g, m, v = four()
    row = torch.zeros(6)
    return {
        "exp_avg_sq": lambda: (p, g, m, m),
        "grad": lambda: (p, p, m, v),
        "exp_avg": lambda: (row[:4], g, row[2:], v),
        "param": lambda: (
            torch.ones(5).as_strided((2, 4), (1, 1)),
            *(t.expand(2, 4).clone() for t in (g, m, v)),
        ),
    }


@pytest.mark.parametrize("name", shared_memory())
def test_memory_that_two_elements_share_is_refused(name: str) -> None:
    tensors = shared_memory()[name]()
    before = [t.clone() for t in tensors]
    with pytest.raises(errors.ArgumentError, match=f"`{name}`"):
        nki_lib.adamw(*tensors, 1, lr=0.1)
    assert all(torch.equal(t, old) for t, old in zip(tensors, before))


def test_moments_that_take_turns_in_memory_are_written() -> None:
    both, tensors, expected = torch.zeros(4, 2), four(), four()
    nki_lib.adamw(*tensors[:2], both[:, 0], both[:, 1], 1, lr=0.1)
    nki_lib.adamw(*expected, 1, lr=0.1)
    assert torch.equal(tensors[0], expected[0]) and torch.equal(both, torch.stack(expected[2:], 1))


def test_a_negated_view_is_refused() -> None:
    p, g, m, v = four()
    negated = torch.ones(4, dtype=torch.complex64).conj().imag
    assert negated.is_neg()
    for tensors in ((negated, g, m, v), (p, negated, m, v)):
        with pytest.raises(errors.ArgumentError, match="negated"):
            nki_lib.adamw(*tensors, 1)


WRONG_OPTIONS: list[tuple[str, Any]] = [
    ("lr", "a"),
    ("lr", None),
    ("lr", True),
    ("lr", 1e39),
    ("lr", torch.ones(2)),
    ("lr", meta(0.1)),
    ("betas", (0.9,)),
    ("betas", 0.9),
    ("eps", None),
    ("weight_decay", "x"),
    ("maximize", "x"),
]


@pytest.mark.parametrize(("name", "value"), WRONG_OPTIONS)
def test_the_optimiser_names_the_option(name: str, value: Any) -> None:
    with pytest.raises(errors.NkiError, match=f"`{name}`"):
        nki_lib.AdamW([parameter()], **{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("step", torch.tensor(-5.0)),
        ("step", torch.tensor(float("nan"))),
        ("step", 1.0),
        ("step", None),
        ("step", meta(1.0)),
        ("exp_avg", torch.zeros(3, device="meta")),
        ("exp_avg", torch.zeros(2)),
        ("exp_avg_sq", None),
        ("exp_avg_sq", torch.zeros(3).expand(3).as_strided((3,), (0,))),
    ],
)
def test_a_step_looks_at_all_states_before_it_writes_the_first(name: str, value: Any) -> None:
    first, second = parameter(), parameter()
    optimizer = nki_lib.AdamW([first, second])
    optimizer.step()
    optimizer.state[second][name] = value
    before = first.detach().clone()
    with pytest.raises(errors.NkiError, match=f"`{name}`"):
        optimizer.step()
    assert torch.equal(first, before) and optimizer.state[first]["step"].item() == 1


def test_a_rate_that_turns_negative_is_refused() -> None:
    p = parameter()
    optimizer = nki_lib.AdamW([p], lr=torch.tensor(0.1))
    optimizer.param_groups[0]["lr"].fill_(-1)
    with pytest.raises(errors.ArgumentError, match="`lr`"):
        optimizer.step()


def test_a_learned_rate_steps_without_a_warning() -> None:
    p = parameter()
    nki_lib.AdamW([p], lr=learned(0.1)).step()
    assert not torch.equal(p, torch.ones(3))


def test_numbers_that_vary_compile_as_one_graph() -> None:
    torch._dynamo.reset()
    step = torch.compile(
        lambda p, g, m, v, number, lr: nki_lib.adamw(p, g, m, v, number, lr=lr, grad_scale=lr + 1),
        fullgraph=True,
        backend="aot_eager",
        dynamic=True,
    )
    for number, lr in ((1, 0.1), (2, 0.2), (3, 0.3)):
        ours, theirs = four(), four()
        step(*ours, number, lr)
        nki_lib.adamw(*theirs, number, lr=lr, grad_scale=lr + 1)
        assert all(torch.equal(mine, true) for mine, true in zip(ours, theirs))
    torch._dynamo.reset()
