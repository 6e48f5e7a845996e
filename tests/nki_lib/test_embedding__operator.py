"""`nki_lib.embedding` as PyTorch sees it, and its programs: schema, fakes, compile, export, errors, checks, time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import nki  # noqa: E402
from nki import errors  # noqa: E402
from nki_lib.lookup.embedding import api, op  # noqa: E402
from nki_lib.lookup.embedding.api import embedding  # noqa: E402
from nki_lib.lookup.embedding.kernel import embedding as kernel  # noqa: E402
from nki_lib.lookup.embedding.kernel import embedding_backward as backward  # noqa: E402

OPS = torch.ops.nki_lib
IDS = torch.tensor([[3, 1], [0, 3]])
TARGETS = ("trn2", "trn3")  # gathers are documented from trn2 on


def random(*shape: int, dtype: Any = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def test_schema() -> None:
    assert str(OPS.embedding.default._schema) == (
        "nki_lib::embedding(Tensor input, Tensor weight, *, SymInt? padding_idx=None, float? scale=None) -> Tensor"
    )


@pytest.mark.slow
def test_opcheck() -> None:
    torch.library.opcheck(
        OPS.embedding, (IDS, random(4, 6).requires_grad_()), {"padding_idx": 1, "scale": 2.0}
    )
    quick = ("test_schema", "test_faketensor")
    torch.library.opcheck(OPS.embedding, (IDS.mT.int(), random(6, 4).mT), test_utils=quick)
    torch.library.opcheck(OPS.embedding, (IDS[:0], random(4, 6)), test_utils=quick)
    torch.library.opcheck(OPS.embedding_backward, (random(2, 2, 6), IDS, 4), test_utils=quick)


@pytest.mark.slow
def test_compiles_as_one_graph_with_gradients_for_all_lengths() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(
        lambda ids, weight: embedding(ids, weight, padding_idx=0) * 2,
        fullgraph=True,
        backend="aot_eager",
        dynamic=True,
    )
    weight = random(11, 7).requires_grad_()  # no size twice: equal ones would be taken for one
    for batch, length in ((2, 5), (3, 9), (4, 70)):
        ids = torch.arange(batch * length).view(batch, length) % 11
        found, expected = compiled(ids, weight), functional.embedding(ids, weight, 0) * 2
        assert torch.equal(found, expected)
        slopes = [torch.autograd.grad(value.square().sum(), weight)[0] for value in (found, expected)]
        assert torch.allclose(*slopes, rtol=1e-5)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    torch._dynamo.reset()


@pytest.mark.slow
def test_exports() -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(random(9, 5))

        def forward(self, ids: Tensor) -> Tensor:
            return embedding(ids, self.weight, scale=3.0)

    length = torch.export.Dim("length", min=2, max=512)
    program = torch.export.export(Table(), (IDS,), dynamic_shapes={"ids": {1: length}})
    ids = torch.arange(40).view(2, 20) % 9
    assert torch.equal(program.module()(ids), embedding(ids, random(9, 5), scale=3.0))


def test_meta_tensors() -> None:
    found = embedding(IDS.to("meta"), random(4, 6, dtype=torch.bfloat16).to("meta"))
    assert found.device.type == "meta" and found.shape == (2, 2, 6) and found.dtype == torch.bfloat16


def test_one_program_serves_many_numbers_of_ids() -> None:
    for program in (kernel, backward):
        program._cache.clear()
    weight = random(4, 6).requires_grad_()
    for count in (257, 300, 384):
        embedding(torch.zeros(count, dtype=torch.int64), weight).sum().backward()
    assert len(kernel._cache) == 1 and len(backward._cache) == 1


def test_gradients_of_gradients_are_refused() -> None:
    weight = random(4, 6).requires_grad_()
    (slope,) = torch.autograd.grad(embedding(IDS, weight).square().sum(), weight, create_graph=True)
    with pytest.raises(errors.NoBackwardError, match=r"no_grad"):
        slope.sum().backward()


WRONG: dict[str, tuple[type[Exception], str, Any]] = {
    "float ids": (errors.DtypeError, "`input`", lambda w, i: embedding(i.float(), w)),
    "float64": (errors.DtypeError, "`weight`", lambda w, i: embedding(i, w.double())),
    "vector": (errors.ShapeError, "`weight`", lambda w, i: embedding(i, w[0])),
    "padding": (errors.ArgumentError, "`padding_idx`", lambda w, i: embedding(i, w, padding_idx=4)),
    "scale": (errors.ArgumentError, "`scale`", lambda w, i: embedding(i, w, scale=float("inf"))),
    "no tensor": (errors.ArgumentError, "`input`", lambda w, i: embedding([1], w)),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_name_the_argument(case: str) -> None:
    kind, named, make = WRONG[case]
    for device in ("cpu", "meta"):
        with pytest.raises(kind, match=named) as caught:
            make(random(4, 6).to(device), IDS.to(device))
        text = str(caught.value)
        assert "embedding" in text and "found:" in text and "allowed:" in text


@pytest.mark.parametrize("wrong", [4, -1, 2**32])
def test_ids_that_are_no_row(wrong: int) -> None:
    with pytest.raises(errors.ArgumentError, match=r"(?s)`input`.*\[0, 1\]"):
        embedding(torch.tensor([[0, wrong]]), random(4, 6))


def test_too_many_rows() -> None:
    with pytest.raises(errors.ShapeError, match="`weight`"):
        embedding(IDS.to("meta"), torch.empty(op.MOST_ROWS + 1, 2, device="meta"))


def test_without_torch_the_front_door_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_HAS_TORCH", False)
    with pytest.raises(errors.MissingExtraError, match=r"open-nki\[torch\]"):
        embedding(None, None)  # type: ignore[arg-type]


# ---- the programs -------------------------------------------------------------------------------------------------


def calls(dtype: Any) -> list[tuple[Any, tuple[Any, ...]]]:
    """Both kernels with their arguments; ids repeat within tiles and across them, one is no row of the sums."""
    random = np.random.default_rng(0)
    ids = random.integers(0, 50, 256, np.int32)
    weight = random.standard_normal((50, 700), np.float32).astype(dtype)
    sums = np.zeros((50, 700), np.float32)
    skipped = np.where(ids == 7, 50, ids).astype(np.int32)
    return [(kernel, (ids, weight, 3.0)), (backward, (sums, weight[ids], skipped, 3.0))]


def run(program: Any, arguments: tuple[Any, ...]) -> bytes:
    """What it returns, and what it has written."""
    arguments = tuple(a.copy() if isinstance(a, np.ndarray) else a for a in arguments)
    result = program(*arguments)
    return (b"" if result is None else result.tobytes()) + arguments[0].tobytes()


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_eager_planned_and_parsed_give_the_same_bits(dtype: Any, tmp_path: Path) -> None:
    for function, arguments in calls(dtype):
        planned = run(nki.simulate(function, target="trn2"), arguments)
        assert planned == run(nki.simulate(function, target="trn2", eager=True), arguments)
        path = tmp_path / "kernel.nkir"
        path.write_text(str(function.ir(*arguments, target="trn2")), encoding="utf-8")
        assert planned == run(nki.load_ir(path), tuple(a for a in arguments if isinstance(a, np.ndarray)))


@pytest.mark.parametrize("target", TARGETS)
def test_clean_under_every_check(target: str) -> None:
    for function, arguments in calls(ml_dtypes.bfloat16):
        found = function.check(*arguments, target=target)
        assert [str(d) for d in found if d.severity != "note"] == []
        sanitized = run(nki.simulate(function, target=target, sanitize=True), arguments)
        assert sanitized == run(nki.simulate(function, target=target), arguments)


@pytest.mark.slow
def test_time_is_close_to_that_of_moving_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """2048 ids, rows of 4096 in bfloat16 on trn2: at most 1.1 times what reading and writing them needs."""
    monkeypatch.setenv("NKI_CHECK", "0")
    table, ids = np.zeros((32768, 4096), ml_dtypes.bfloat16), np.arange(2048, dtype=np.int32)
    profile = nki.profile(kernel, target="trn2")(ids, table, None)
    assert profile.latency_us <= 1.1 * 2 * 2048 * 4096 * 2 / 368_000
