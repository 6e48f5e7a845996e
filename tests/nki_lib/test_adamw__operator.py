"""`nki_lib.adamw` as PyTorch sees it, and its program: schema, fakes, compile, export, errors, checks, time."""

from __future__ import annotations

import importlib.util
import runpy
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

import nki  # noqa: E402
from nki import errors  # noqa: E402
from nki_lib.optimizer.adamw import api  # noqa: E402
from nki_lib.optimizer.adamw.api import AdamW, adamw  # noqa: E402
from nki_lib.optimizer.adamw.kernel import adamw as kernel  # noqa: E402

OPS = torch.ops.nki_lib
TARGETS = ("trn1", "trn2", "trn3")


def random(*shape: int, dtype: Any = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def four(*shape: int) -> list[Tensor]:
    """Parameter, gradient and moments before the first step."""
    return [random(*shape), random(*shape) / 2, torch.zeros(shape), torch.zeros(shape)]


def test_schema() -> None:
    assert str(OPS.adamw.default._schema) == (
        "nki_lib::adamw(Tensor(a!) param, Tensor grad, Tensor(b!) exp_avg, Tensor(c!) exp_avg_sq, Tensor step, "
        "Tensor lr, Tensor? grad_scale=None, *, float beta1=0.90000000000000002, float beta2=0.999, "
        "float eps=1e-08, float weight_decay=0.01) -> ()"
    )


@pytest.mark.slow
def test_opcheck() -> None:
    numbers = (torch.tensor(1.0), torch.tensor(0.1))
    torch.library.opcheck(OPS.adamw, (*four(4, 5), *numbers), {"weight_decay": 0.5})
    quick = ("test_schema", "test_faketensor")
    torch.library.opcheck(
        OPS.adamw, (*[t.mT for t in four(4, 5)], *numbers, torch.tensor(8.0)), test_utils=quick
    )
    torch.library.opcheck(OPS.adamw, (*four(0, 5), *numbers), test_utils=quick)


@pytest.mark.slow
def test_compiles_as_one_graph_for_all_sizes_and_rates() -> None:
    def step(param: Tensor, grad: Tensor, first: Tensor, second: Tensor, lr: Tensor) -> Tensor:
        adamw(param, grad * 2, first, second, 1, lr=lr)
        return param + 1

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager", dynamic=True)
    for count, lr in ((9, 0.1), (130, 0.2), (300, 0.3)):
        ours, theirs = four(count, 5), four(count, 5)
        found, expected = compiled(*ours, torch.tensor(lr)), step(*theirs, torch.tensor(lr))
        assert torch.equal(found, expected)
        assert all(torch.equal(mine, true) for mine, true in zip(ours, theirs))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    torch._dynamo.reset()


@pytest.mark.slow
def test_exports() -> None:
    class Step(nn.Module):
        def forward(self, param: Tensor, grad: Tensor, first: Tensor, second: Tensor) -> Tensor:
            adamw(param, grad, first, second, 1, lr=0.1)
            return param.clone()

    count = torch.export.Dim("count", min=2, max=512)
    program = torch.export.export(Step(), tuple(four(6)), dynamic_shapes=[{0: count}] * 4)
    ours, theirs = four(20), four(20)
    found = program.module()(*ours)
    adamw(*theirs, 1, lr=0.1)
    assert torch.equal(found, theirs[0]) and torch.equal(ours[2], theirs[2])


def test_meta_tensors() -> None:
    param = random(4, 6).to("meta")
    adamw(param, param.clone(), param.clone(), param.clone(), 1)


WRONG: dict[str, tuple[type[Exception], str, Any, dict[str, Any]]] = {
    "float64": (errors.DtypeError, "`param`", lambda p, g, m, v: (p.double(), g, m, v), {}),
    "gradient type": (errors.DtypeError, "`grad`", lambda p, g, m, v: (p, g.bfloat16(), m, v), {}),
    "state type": (errors.DtypeError, "`exp_avg`", lambda p, g, m, v: (p, g, m.half(), v.half()), {}),
    "two states": (
        errors.DtypeError,
        "`exp_avg_sq`",
        lambda p, g, m, v: (p.half(), g.half(), m.half(), v),
        {},
    ),
    "gradient shape": (errors.ShapeError, "`grad`", lambda p, g, m, v: (p, g[:1], m, v), {}),
    "state shape": (errors.ShapeError, "`exp_avg_sq`", lambda p, g, m, v: (p, g, m, v.flatten()), {}),
    "expanded": (errors.ArgumentError, "`exp_avg`", lambda p, g, m, v: (p, g, m[:1, :1].expand(4, 6), v), {}),
    "no tensor": (errors.ArgumentError, "`grad`", lambda p, g, m, v: (p, 1.0, m, v), {}),
    "betas": (errors.ArgumentError, "`betas`", lambda *t: t, {"betas": (0.9, 1.0)}),
    "eps": (errors.ArgumentError, "`eps`", lambda *t: t, {"eps": -1.0}),
    "decay": (errors.ArgumentError, "`weight_decay`", lambda *t: t, {"weight_decay": float("nan")}),
    "rates": (errors.ShapeError, "`lr`", lambda *t: t, {"lr": torch.ones(2)}),
    "learned": (errors.NoBackwardError, "`param`", lambda p, *t: (p.requires_grad_(), *t), {}),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_name_the_argument_and_nothing_is_written(case: str) -> None:
    kind, named, make, options = WRONG[case]
    for device in ("cpu", "meta"):
        tensors = [t.to(device) for t in four(4, 6)]
        with pytest.raises(kind, match=named) as caught:
            adamw(*make(*tensors), 1, **options)
        assert "adamw" in str(caught.value) and "allowed:" in str(caught.value)
        if device == "cpu":
            assert all(torch.equal(t.detach(), before) for t, before in zip(tensors, four(4, 6)))


@pytest.mark.parametrize(
    ("named", "options"),
    [
        ("`step`", {"step": 0}),
        ("`lr`", {"lr": -1.0}),
        ("`lr`", {"lr": float("nan")}),
        ("`grad_scale`", {"grad_scale": 0.0}),
    ],
)
def test_numbers_that_no_step_has(named: str, options: dict[str, Any]) -> None:
    tensors = four(4, 6)
    with pytest.raises(errors.ArgumentError, match=named):
        adamw(*tensors, **{"step": 1, **options})
    assert torch.equal(tensors[0], four(4, 6)[0])


@pytest.mark.parametrize(
    "options", [{"lr": -1.0}, {"betas": (1.0, 0.9)}, {"eps": -1.0}, {"weight_decay": -1.0}]
)
def test_the_optimiser_refuses_numbers_out_of_range(options: dict[str, Any]) -> None:
    with pytest.raises(errors.ArgumentError, match=f"`{next(iter(options))}`"):
        AdamW([nn.Parameter(random(3))], **options)


def test_the_optimiser_refuses_the_state_of_amsgrad() -> None:
    parameters = [nn.Parameter(random(3))]
    asked = torch.optim.AdamW(parameters, amsgrad=True).state_dict()
    with pytest.raises(errors.ArgumentError, match="`amsgrad`"):
        AdamW(parameters).load_state_dict(asked)


def test_without_torch_the_front_doors_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    doors = runpy.run_path(api.__file__)
    for door, given in (("adamw", [None] * 5), ("AdamW", [[]])):
        with pytest.raises(errors.MissingExtraError, match=r"open-nki\[torch\]"):
            doors[door](*given)


# ---- the program --------------------------------------------------------------------------------------------------


def arguments(count: int, param: Any, state: Any) -> tuple[Any, ...]:
    random = np.random.default_rng(0)
    first, second, third, fourth = (random.standard_normal(count, np.float32) for _ in range(4))
    numbers = np.array([0.9, 0.1, 0.999, 0.03, 1.0, 1e-8, -1e-3, 0.99], np.float32)
    return first.astype(param), second.astype(param), third.astype(state), (fourth**2).astype(state), numbers


def written(program: Any, given: tuple[Any, ...]) -> list[bytes]:
    """All arguments after a run."""
    tensors = [a.copy() for a in given]
    program(*tensors)
    return [a.tobytes() for a in tensors]


CALLS = [
    (1000, np.float32, np.float32),
    (300_000, ml_dtypes.bfloat16, np.float32),
    (77, ml_dtypes.bfloat16, ml_dtypes.bfloat16),
]


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_eager_planned_and_parsed_give_the_same_bits(call: Any, tmp_path: Path) -> None:
    given = arguments(*call)
    planned = written(nki.simulate(kernel, target="trn2"), given)
    assert planned == written(nki.simulate(kernel, target="trn2", eager=True), given)
    path = tmp_path / "kernel.nkir"
    path.write_text(str(kernel.ir(*given, target="trn2")), encoding="utf-8")
    assert planned == written(nki.load_ir(path), given)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_clean_under_every_check(call: Any, target: str) -> None:
    given = arguments(*call)
    assert [str(d) for d in kernel.check(*given, target=target) if d.severity != "note"] == []
    sanitized = written(nki.simulate(kernel, target=target, sanitize=True), given)
    assert sanitized == written(nki.simulate(kernel, target=target), given)


@pytest.mark.slow
def test_time_is_close_to_that_of_moving_the_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 Mi parameters in float32 on trn2: at most 1.1 times what reading four tensors and writing three needs."""
    monkeypatch.setenv("NKI_CHECK", "0")
    zeros = [np.zeros(2**24, np.float32) for _ in range(4)]
    profile = nki.profile(kernel, target="trn2")(*zeros, np.zeros(8, np.float32))
    assert profile.latency_us <= 1.1 * 7 * zeros[0].nbytes / 368_000
