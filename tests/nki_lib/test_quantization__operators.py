"""`quantize` and `dequantize` as PyTorch sees them: schema, fakes, compile, export, errors."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from nki import errors  # noqa: E402
from nki_lib.quantization.dequantize import api as dequantize_api  # noqa: E402
from nki_lib.quantization.dequantize.api import dequantize  # noqa: E402
from nki_lib.quantization.formats import FORMATS  # noqa: E402
from nki_lib.quantization.quantize import api as quantize_api  # noqa: E402
from nki_lib.quantization.quantize.api import quantize  # noqa: E402
from nki_lib.quantization.quantize.kernel import quantize_blocks  # noqa: E402

OPS = torch.ops.nki_lib
SCHEMAS = {
    "quantize": "(Tensor x, str format, *, int dim=-1) -> (Tensor, Tensor)",
    "dequantize": "(Tensor data, Tensor scale, *, str? format=None, int dim=-1, ScalarType dtype=6) -> Tensor",
}


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("name", SCHEMAS)
def test_schema(name: str) -> None:
    assert str(getattr(OPS, name).default._schema) == f"nki_lib::{name}{SCHEMAS[name]}"


@pytest.mark.slow
@pytest.mark.parametrize("format", ["float8_e4m3fn", "mxfp8_e5m2", "mxfp4_e2m1"])
def test_opcheck(format: str) -> None:
    """PyTorch compares no float8 inputs, which its test of the schema does: bytes stand in for them there."""
    x = random(2, 32, 64)
    torch.library.opcheck(OPS.quantize, (x, format), {"dim": 1})
    data, scale = quantize(x, format)
    plain = scale if scale.dtype == torch.float32 else scale.view(torch.uint8)
    torch.library.opcheck(OPS.dequantize, (data.view(torch.uint8), plain), {"format": format})
    quick = ("test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(OPS.dequantize, (data, scale), test_utils=quick)


class RoundTrip(nn.Module):
    """Values as a format holds them."""

    def __init__(self, format: Any) -> None:
        super().__init__()
        self.format = format

    def forward(self, x: Tensor) -> Tensor:
        """[R, K] -> [R, K]."""
        data, scale = quantize(x * 2, self.format)
        return dequantize(data, scale) + 1


@pytest.mark.slow
@pytest.mark.parametrize("format", ["float8_e5m2", "mxfp4_e2m1"])
def test_compiles_as_one_graph_and_exports(format: str) -> None:
    torch._dynamo.reset()
    module = RoundTrip(format)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (3, 5, 140):
        assert torch.equal(compiled(random(rows, 64)), module(random(rows, 64)))
    rows = torch.export.Dim("rows", min=2, max=512)
    program = torch.export.export(module, (random(3, 64),), dynamic_shapes=({0: rows},))
    assert torch.equal(program.module()(random(77, 64)), module(random(77, 64)))
    torch._dynamo.reset()


def test_meta_tensors_have_the_strides_of_real_ones() -> None:
    for format in FORMATS:
        for dim in (0, 1):
            x = random(32, 64)
            real, fake = quantize(x, format, dim=dim), quantize(x.to("meta"), format, dim=dim)
            pairs = [*zip(real, fake)]
            pairs.append((dequantize(*real, dim=dim), dequantize(*fake, dim=dim)))
            for ours, theirs in pairs:
                assert theirs.device.type == "meta" and ours.dtype == theirs.dtype
                assert ours.shape == theirs.shape and ours.stride() == theirs.stride()


def test_other_numbers_of_rows_stage_nothing_new() -> None:
    for rows in (64, 33):
        quantize(random(rows, 96), "mxfp8_e4m3")
    before = len(quantize_blocks._cache)
    for rows in (34, 41, 60):
        quantize(random(rows, 96), "mxfp8_e4m3")
    assert len(quantize_blocks._cache) == before


X = (4, 64)
WRONG: dict[str, tuple[type[Exception], str, Any]] = {
    "quantize: format": (errors.ArgumentError, "`format`", lambda r: quantize(r(*X), "fp8")),
    "quantize: float64": (errors.DtypeError, "`x`", lambda r: quantize(r(*X).double(), "mxfp8_e4m3")),
    "quantize: scalar": (errors.ShapeError, "`x`", lambda r: quantize(r(1)[0], "float8_e5m2")),
    "quantize: dim": (errors.ArgumentError, "`dim`", lambda r: quantize(r(*X), "float8_e5m2", dim=2)),
    "quantize: blocks": (errors.ShapeError, "`x`", lambda r: quantize(r(*X), "mxfp4_e2m1", dim=0)),
    "dequantize: data": (errors.DtypeError, "`data`", lambda r: dequantize(r(*X), r(4, 1))),
    "dequantize: type": (
        errors.DtypeError,
        "`data`",
        lambda r: dequantize(r(*X), r(4, 1), format="float8_e4m3fn"),
    ),
    "dequantize: format": (
        errors.ArgumentError,
        "`format`",
        lambda r: dequantize(r(*X), r(4, 1), format="int8"),
    ),
    "dequantize: scale": (
        errors.DtypeError,
        "`scale`",
        lambda r: dequantize(r(*X).to(torch.uint8), r(4, 2), format="mxfp8_e4m3"),
    ),
    "dequantize: shape": (
        errors.ShapeError,
        "`scale`",
        lambda r: dequantize(r(*X).to(torch.float8_e5m2), r(4)),
    ),
    "dequantize: blocks": (
        errors.ShapeError,
        "`data`",
        lambda r: dequantize(r(4, 40).to(torch.uint8), r(4, 1).to(torch.uint8), format="mxfp8_e5m2"),
    ),
    "dequantize: dtype": (
        errors.DtypeError,
        "`dtype`",
        lambda r: dequantize(r(*X).to(torch.float8_e5m2), r(4, 1), dtype=torch.float64),
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_name_the_argument(case: str) -> None:
    kind, named, make = WRONG[case]
    for device in ("cpu", "meta"):
        with pytest.raises(kind, match=named) as caught:
            make(lambda *shape: random(*shape).to(device))  # noqa: B023
        text = str(caught.value)
        assert case.split(":")[0] in text and "found:" in text and "allowed:" in text


def test_sparse_tensors_are_refused() -> None:
    with pytest.raises(errors.ArgumentError, match="`x`"):
        quantize(random(*X).to_sparse(), "mxfp8_e4m3")
    with pytest.raises(errors.ArgumentError, match="`scale`"):
        dequantize(random(*X).to(torch.float8_e5m2), random(4, 1).to_sparse())


@pytest.mark.parametrize("api", [quantize_api, dequantize_api])
def test_without_torch_the_front_door_says_what_to_install(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_HAS_TORCH", False)
    name = api.__name__.split(".")[-2]
    with pytest.raises(errors.MissingExtraError, match=r"open-nki\[torch\]"):
        getattr(api, name)(None, None)
