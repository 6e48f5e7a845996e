"""`depthwise_conv1d` and `selective_scan` as PyTorch sees them: schema, fakes, compile, export, programs, errors."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from nki import errors  # noqa: E402
from nki_lib.sequence.depthwise_conv1d import api as conv_api  # noqa: E402
from nki_lib.sequence.depthwise_conv1d.api import depthwise_conv1d  # noqa: E402
from nki_lib.sequence.depthwise_conv1d.kernel import depthwise_conv1d as conv_kernel  # noqa: E402
from nki_lib.sequence.depthwise_conv1d.reference import depthwise_conv1d as conv_reference  # noqa: E402
from nki_lib.sequence.selective_scan import api as scan_api  # noqa: E402
from nki_lib.sequence.selective_scan.api import selective_scan  # noqa: E402
from nki_lib.sequence.selective_scan.kernel import selective_scan as scan_kernel  # noqa: E402
from nki_lib.sequence.selective_scan.reference import selective_scan as scan_reference  # noqa: E402

OPS = torch.ops.nki_lib
SCHEMAS = {
    "depthwise_conv1d": "(Tensor x, Tensor weight, Tensor? bias=None, *, str? activation=None, int[]? padding=None) "
    "-> Tensor",
    "depthwise_conv1d_backward": "(Tensor grad, Tensor x, Tensor weight, Tensor? bias, *, bool silu, int[] padding) "
    "-> Tensor[]",
    "selective_scan": "(Tensor u, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor? D=None, Tensor? z=None, "
    "Tensor? delta_bias=None, bool delta_softplus=False) -> Tensor[]",
    "selective_scan_backward": "(Tensor grad, Tensor u, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor? D, "
    "Tensor? z, Tensor? delta_bias, bool delta_softplus, Tensor ends, Tensor? of_ends, Tensor? plain) -> Tensor[]",
}
QUICK = ("test_schema", "test_faketensor")


def random(*shape: int, dtype: Any = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def leaf(*shape: int) -> Tensor:
    return random(*shape).requires_grad_()


def scan_arguments(b: int, d: int, length: int, n: int) -> tuple[Tensor, ...]:
    """u, delta, A, B, C, D, z, delta_bias."""
    A = (-random(d, n).abs()).requires_grad_()
    sizes = (b, d, length), (b, n, length)
    return (
        leaf(*sizes[0]),
        leaf(*sizes[0]),
        A,
        leaf(*sizes[1]),
        leaf(*sizes[1]),
        leaf(d),
        leaf(*sizes[0]),
        leaf(d),
    )


@pytest.mark.parametrize("name", SCHEMAS)
def test_schema(name: str) -> None:
    assert str(getattr(OPS, name).default._schema) == f"nki_lib::{name}{SCHEMAS[name]}"


@pytest.mark.slow
def test_opcheck() -> None:
    conv, scan = OPS.depthwise_conv1d, OPS.selective_scan
    torch.library.opcheck(conv, (leaf(2, 5, 9), leaf(5, 4), leaf(5)), {"activation": "silu"})
    torch.library.opcheck(conv, (leaf(2, 5, 9), leaf(5, 3)), {"padding": [0, 4]}, test_utils=QUICK)
    torch.library.opcheck(conv, (random(2, 9, 5).mT, random(5, 3)), test_utils=QUICK)
    torch.library.opcheck(conv, (random(2, 5, 0), random(5, 3)), test_utils=QUICK)
    gradient = (random(1, 5, 9), random(1, 5, 9), random(5, 4), random(5))
    options = {"silu": True, "padding": [3, 0]}
    torch.library.opcheck(OPS.depthwise_conv1d_backward, gradient, options, test_utils=QUICK)
    call = scan_arguments(2, 5, 9, 3)
    torch.library.opcheck(scan, (*call, True))
    torch.library.opcheck(scan, tuple(t.detach() for t in call[:5]), test_utils=QUICK)
    torch.library.opcheck(scan, (*(t.detach() for t in scan_arguments(1, 5, 0, 3)), True), test_utils=QUICK)
    gradient = (call[0], *call, True, random(2, 1, 5, 3), None, call[0])
    torch.library.opcheck(OPS.selective_scan_backward, gradient, test_utils=QUICK)


class Block(nn.Module):
    """The middle of a Mamba block, ours or PyTorch's."""

    def __init__(self, ours: bool) -> None:
        super().__init__()
        self.ours = ours
        self.conv, self.bias = nn.Parameter(random(6, 4) / 2), nn.Parameter(random(6))
        self.rates, self.skip, self.shift = (nn.Parameter(random(*s)) for s in ((6, 3), (6,), (6,)))
        self.project = nn.Parameter(random(6, 6) / 3)

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """[B, 6, L] -> [B, 6, L]."""
        if self.ours:
            u = depthwise_conv1d(x, self.conv, self.bias, activation="silu")
        else:
            u = conv_reference(x, self.conv, self.bias, 3, 0, True)
        B, C = (self.project @ u).split(3, 1)
        call = u, x, -self.rates.exp(), B, C, self.skip, z, self.shift, True
        if not self.ours:
            y, state = scan_reference(*call)
        else:
            y, state = selective_scan(*call, return_last_state=True)
        return y + state.sum(-1, keepdim=True)


@pytest.mark.slow
def test_compiles_as_one_graph_with_gradients_for_all_lengths() -> None:
    torch._dynamo.reset()
    ours, theirs = Block(True), Block(False)
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager", dynamic=True)
    for batch, length in ((2, 5), (3, 9), (2, 130)):
        x, z = random(batch, 6, length), random(batch, length, 6).mT
        found, expected = compiled(x, z), theirs(x, z)
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-4)
        mine = torch.autograd.grad(found.sin().mean(), list(ours.parameters()))
        true = torch.autograd.grad(expected.sin().mean(), list(theirs.parameters()))
        assert all(torch.allclose(a, b, rtol=1e-3, atol=1e-4) for a, b in zip(mine, true))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    torch._dynamo.reset()


@pytest.mark.slow
def test_exports_with_a_dynamic_length() -> None:
    length = torch.export.Dim("length", min=2, max=512)
    example = (random(2, 6, 9), random(2, 6, 9))
    program = torch.export.export(Block(True), example, dynamic_shapes=({2: length}, {2: length}))
    called = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert {"nki_lib.depthwise_conv1d.default", "nki_lib.selective_scan.default"} <= called
    other = (random(2, 6, 77), random(2, 6, 77))
    assert torch.allclose(program.module()(*other), Block(False)(*other), rtol=1e-4, atol=1e-4)


def test_meta_tensors() -> None:
    x = torch.empty(2, 9, 5, device="meta", dtype=torch.bfloat16).mT
    out = depthwise_conv1d(x, x[0, :, :4], x[0, :, 0], padding=(2, 4))
    assert out.shape == (2, 5, 12) and out.is_contiguous() and out.dtype == torch.bfloat16
    y, state = selective_scan(
        x, x, torch.empty(5, 3, device="meta"), x[:, :3], x[:, :3], return_last_state=True
    )
    assert y.shape == (2, 5, 9) and y.is_contiguous() and y.device.type == "meta"
    assert state.shape == (2, 5, 3) and state.dtype == torch.float32


def test_autocast_casts_the_convolution() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert depthwise_conv1d(random(1, 5, 9), random(5, 4), random(5)).dtype == torch.bfloat16


def test_lengths_share_programs() -> None:
    """Lengths between two sizes run the same program: nothing is staged again."""
    kernels = conv_kernel, scan_kernel
    for length in (33, 40, 64):
        depthwise_conv1d(random(1, 7, length), random(7, 4))
        selective_scan(*(t.detach() for t in scan_arguments(1, 7, length, 2)), True)
        if length == 33:
            staged = [len(kernel._cache) for kernel in kernels]
    assert [len(kernel._cache) for kernel in kernels] == staged


X, W = (2, 5, 9), (5, 4)


def conv(r: Any, x: Any = X, weight: Any = W, **more: Any) -> Tensor:
    return depthwise_conv1d(r(*x), r(*weight), **more)


def scan(r: Any, **other: Tensor) -> Any:
    """A call with some arguments replaced by others."""
    names = ("u", "delta", "A", "B", "C", "D", "z", "delta_bias")
    shapes = (X, X, (5, 3), (2, 3, 9), (2, 3, 9), (5,), X, (5,))
    return selective_scan(**({name: r(*shape) for name, shape in zip(names, shapes)} | other))


WRONG: dict[str, tuple[type[Exception], str, Any]] = {
    "depthwise_conv1d: rank": (errors.ShapeError, "`x`", lambda r: conv(r, (5, 9))),
    "depthwise_conv1d: float64": (
        errors.DtypeError,
        "`x`",
        lambda r: depthwise_conv1d(r(*X).double(), r(*W)),
    ),
    "depthwise_conv1d: channels": (errors.ShapeError, "`weight`", lambda r: conv(r, weight=(6, 4))),
    "depthwise_conv1d: taps": (errors.ShapeError, "`weight`", lambda r: conv(r, weight=(5, 0))),
    "depthwise_conv1d: groups": (errors.ShapeError, "`weight`", lambda r: conv(r, weight=(5, 2, 4))),
    "depthwise_conv1d: weight type": (
        errors.DtypeError,
        "`weight`",
        lambda r: depthwise_conv1d(r(*X), r(*W).half()),
    ),
    "depthwise_conv1d: bias": (errors.ShapeError, "`bias`", lambda r: conv(r, bias=r(4))),
    "depthwise_conv1d: activation": (
        errors.ArgumentError,
        "`activation`",
        lambda r: conv(r, activation="relu"),
    ),
    "depthwise_conv1d: padding": (errors.ArgumentError, "`padding`", lambda r: conv(r, padding=(1, 2, 3))),
    "depthwise_conv1d: negative": (errors.ArgumentError, "`padding`", lambda r: conv(r, padding=(-1, 3))),
    "depthwise_conv1d: too short": (errors.ShapeError, "`x`", lambda r: conv(r, (2, 5, 2), padding=(0, 0))),
    "depthwise_conv1d: state": (
        errors.ShapeError,
        "`initial_state`",
        lambda r: conv(r, initial_state=r(2, 5, 4)),
    ),
    "depthwise_conv1d: state and padding": (
        errors.ArgumentError,
        "`padding`",
        lambda r: conv(r, initial_state=r(2, 5, 3), padding=(0, 0)),
    ),
    "depthwise_conv1d: gradient": (
        errors.ShapeError,
        "`grad`",
        lambda r: OPS.depthwise_conv1d_backward(r(2, 5, 8), r(*X), r(*W), None, silu=True, padding=[3, 0]),
    ),
    "selective_scan: rank": (errors.ShapeError, "`u`", lambda r: scan(r, u=r(5, 9))),
    "selective_scan: float64": (errors.DtypeError, "`u`", lambda r: scan(r, u=r(*X).double())),
    "selective_scan: delta": (errors.ShapeError, "`delta`", lambda r: scan(r, delta=r(2, 5, 8))),
    "selective_scan: delta type": (errors.DtypeError, "`delta`", lambda r: scan(r, delta=r(*X).half())),
    "selective_scan: A": (errors.ShapeError, "`A`", lambda r: scan(r, A=r(4, 3))),
    "selective_scan: A type": (errors.DtypeError, "`A`", lambda r: scan(r, A=r(5, 3).bfloat16())),
    "selective_scan: states": (errors.ShapeError, "`A`", lambda r: scan(r, A=r(5, 129))),
    "selective_scan: B": (errors.ShapeError, "`B`", lambda r: scan(r, B=r(2, 4, 9))),
    "selective_scan: C": (errors.ShapeError, "`C`", lambda r: scan(r, C=r(5, 3))),
    "selective_scan: D": (errors.ShapeError, "`D`", lambda r: scan(r, D=r(6))),
    "selective_scan: D type": (errors.DtypeError, "`D`", lambda r: scan(r, D=r(5).half())),
    "selective_scan: z": (errors.ShapeError, "`z`", lambda r: scan(r, z=r(1, 5, 9))),
    "selective_scan: bias": (errors.ShapeError, "`delta_bias`", lambda r: scan(r, delta_bias=r(5, 1))),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_name_the_argument(case: str) -> None:
    kind, named, make = WRONG[case]
    for device in ("cpu", "meta"):
        with pytest.raises(kind, match=named) as caught:
            make(lambda *shape: random(*shape).to(device))  # noqa: B023
        text = str(caught.value)
        assert case.split(":")[0] in text and "found:" in text and "allowed:" in text


def test_devices_and_layouts() -> None:
    with pytest.raises(errors.ArgumentError, match="`weight`"):
        depthwise_conv1d(random(*X), random(*W).to("meta"))
    with pytest.raises(errors.ArgumentError, match="`A`"):
        scan(random, A=random(5, 3).to_sparse())


@pytest.mark.parametrize("api", [conv_api, scan_api])
def test_without_torch_the_front_door_says_what_to_install(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "_HAS_TORCH", False)
    with pytest.raises(errors.MissingExtraError, match=r"open-nki\[torch\]"):
        getattr(api, api.__name__.split(".")[-2])(*[None] * (2 if api is conv_api else 5))
