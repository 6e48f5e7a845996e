"""`nki.torch`: operators from kernels and from functions, schemas, fakes, gradients, launches into given tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402
from nki import errors  # noqa: E402
from nki.torch import nki_op, run_into  # noqa: E402


@nki.jit
def scale_kernel(x: Any, factor: float = 2.0) -> Any:
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def pair_kernel(x: Any) -> tuple[Any, Any]:
    return scale_kernel(x, 2.0), scale_kernel(x, 3.0)


@nki.jit
def add_into_kernel(x: Any, total: Any) -> Any:
    a = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    b = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=a, src=x)
    nisa.dma_copy(dst=b, src=total)
    nisa.tensor_tensor(dst=b, data1=a, data2=b, op=nl.add)
    nisa.dma_copy(dst=total, src=b)
    return total


scale = nki_op("nki_tests::scale", scale_kernel)


@nki_op("nki_tests::scale_rows", fake=lambda x: x.new_empty(x.shape))
def scale_rows(x: torch.Tensor) -> torch.Tensor:
    out = x.new_empty(x.shape)
    for i in range(x.shape[0]):
        run_into(out[i], scale_kernel, x[i], 5.0)
    return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_kernel_as_operator(dtype: Any) -> None:
    x = torch.arange(12.0).reshape(3, 4).to(dtype)
    assert torch.equal(scale(x), x * 2)
    assert torch.equal(torch.ops.nki_tests.scale(x, 3.0), x * 3)
    torch.library.opcheck(torch.ops.nki_tests.scale, (x, 3.0), test_utils=("test_schema", "test_faketensor"))


def test_schema_of_a_kernel_without_annotations() -> None:
    assert str(torch.ops.nki_tests.scale.default._schema) == (
        "nki_tests::scale(Tensor x, float factor=2.) -> Tensor"
    )


def test_function_as_operator() -> None:
    x = torch.arange(24.0).reshape(2, 3, 4)
    assert torch.equal(scale_rows(x), x * 5)
    torch.library.opcheck(torch.ops.nki_tests.scale_rows, (x,))


def test_compiles() -> None:
    x = torch.ones(3, 4)
    compiled = torch.compile(lambda x: scale(x, 4.0) + 1, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), x * 5)
    torch._dynamo.reset()


def test_several_results() -> None:
    pair = nki_op("nki_tests::pair", pair_kernel)
    x = torch.ones(2, 3)
    two, three = pair(x)
    assert torch.equal(two, x * 2) and torch.equal(three, x * 3)
    outs = [torch.empty(2, 3), torch.empty(2, 3)]
    run_into(outs, pair_kernel, x)
    assert torch.equal(outs[0], two) and torch.equal(outs[1], three)


def test_mutated_argument() -> None:
    def add_into(x: torch.Tensor, total: torch.Tensor) -> None:
        add_into_kernel(x, total)

    operator = nki_op("nki_tests::add_into", add_into, fake=lambda x, total: None, mutates_args=("total",))
    x, total = torch.ones(2, 3), torch.full((2, 3), 4.0)
    operator(x, total)
    assert torch.equal(total, x * 5)
    torch.library.opcheck(torch.ops.nki_tests.add_into, (x, total))


@pytest.mark.parametrize("eager", ["", "1"])
def test_run_into_writes_the_given_memory(eager: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NKI_EAGER", eager)
    batch = torch.zeros(3, 2, 4, dtype=torch.bfloat16)
    run_into(batch[1], scale_kernel, torch.ones(2, 4, dtype=torch.bfloat16))
    assert batch.sum(dim=(1, 2)).tolist() == [0, 16, 0]
    columns = torch.zeros(4, 2)
    run_into(columns.T, scale_kernel, torch.arange(8.0).reshape(2, 4))
    assert torch.equal(columns, torch.arange(8.0).reshape(2, 4).T * 2)


@pytest.mark.parametrize(
    "out", [torch.empty(4, 2), torch.empty(2, 4, dtype=torch.float16), [torch.empty(2, 4)] * 2]
)
def test_run_into_refuses_what_does_not_fit(out: Any) -> None:
    with pytest.raises(errors.ArgumentError, match="cannot receive the results"):
        run_into(out, scale_kernel, torch.ones(2, 4))


def test_loaded_program_as_operator(tmp_path: Any) -> None:
    path = tmp_path / "scale.nkir"
    path.write_text(str(scale_kernel.ir(np.ones((2, 4), np.float32), 7.0)), encoding="utf-8")
    program = nki.load_ir(path)
    operator = nki_op("nki_tests::loaded", program, schema="(Tensor x) -> Tensor")
    assert torch.equal(operator(torch.ones(2, 4)), torch.full((2, 4), 7.0))
    out = torch.empty(2, 4)
    run_into(out, program, torch.ones(2, 4))
    assert torch.equal(out, torch.full((2, 4), 7.0))


def test_gradients_are_refused_until_one_is_registered() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    with pytest.raises(errors.NoBackwardError, match="nki_tests::scale has no gradient"):
        scale(x).sum().backward()
    own = nki_op("nki_tests::scale_with_gradient", scale_kernel)
    own.register_autograd(lambda ctx, grad: (grad * 2, None))
    own(x, 2.0).sum().backward()
    assert torch.equal(x.grad, torch.full((2, 3), 2.0))


def test_errors() -> None:
    with pytest.raises(errors.ArgumentError, match="needs a library and a name"):
        nki_op("scale", scale_kernel)
    with pytest.raises(errors.ArgumentError, match="needs a fake implementation"):
        nki_op("nki_tests::no_fake", lambda x: x)
    with pytest.raises(errors.DtypeError, match="argument `x`"):
        scale(torch.ones(2, 3, dtype=torch.float64))
