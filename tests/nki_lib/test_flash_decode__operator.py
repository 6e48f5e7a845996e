"""`torch.ops.nki_lib.flash_decode` and `update_cache` as PyTorch sees them: schema, fakes, compile, errors."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from nki import errors  # noqa: E402
from nki_lib.attention.flash_decode.api import flash_decode  # noqa: E402
from nki_lib.attention.flash_decode.kernel import flash_decode as kernel  # noqa: E402
from nki_lib.attention.flash_decode.reference import decode  # noqa: E402
from nki_lib.attention.flash_decode.update import write_rows  # noqa: E402
from tests.source_tree import ROOT  # noqa: E402


def random(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


LENGTHS = torch.tensor([20, 3])
TABLE = torch.tensor([[1, 3, 0], [2, -1, 9]], dtype=torch.int32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_opcheck(dtype: Any) -> None:
    q, cache = random(2, 4, 2, 16, dtype=dtype), random(2, 2, 20, 16, dtype=dtype)
    operator = torch.ops.nki_lib.flash_decode
    torch.library.opcheck(operator, (q, cache, cache.clone(), LENGTHS), {"scale": 0.3, "window": 4})
    blocks = random(4, 2, 7, 16, dtype=dtype)
    torch.library.opcheck(operator, (q, blocks, blocks.clone(), LENGTHS, TABLE, random(4)), {"softcap": 9.0})


def test_opcheck_of_views_and_of_nothing() -> None:
    q, cache = random(2, 2, 4, 16).transpose(1, 2), random(2, 20, 2, 16).transpose(1, 2)
    torch.library.opcheck(torch.ops.nki_lib.flash_decode, (q, cache, cache.clone(), LENGTHS))
    empty = (q[:0], cache[:0], cache[:0].clone(), LENGTHS[:0])
    torch.library.opcheck(torch.ops.nki_lib.flash_decode, empty)


def test_opcheck_of_the_update() -> None:
    new, cache, blocks = random(2, 2, 2, 16), random(2, 2, 20, 16), random(4, 2, 7, 16)
    operator = torch.ops.nki_lib.update_cache
    torch.library.opcheck(operator, (cache, cache.clone(), new, new.clone(), LENGTHS))
    torch.library.opcheck(operator, (blocks, blocks.clone(), new, new.clone(), LENGTHS, TABLE))


def test_schemas() -> None:
    assert str(torch.ops.nki_lib.flash_decode.default._schema) == (
        "nki_lib::flash_decode(Tensor q, Tensor k_cache, Tensor v_cache, Tensor seq_lens, Tensor? block_table=None, "
        "Tensor? sinks=None, *, float? scale=None, int? window=None, float? softcap=None) -> Tensor"
    )
    assert str(torch.ops.nki_lib.update_cache.default._schema) == (
        "nki_lib::update_cache(Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor k_new, Tensor v_new, Tensor seq_lens, "
        "Tensor? block_table=None) -> ()"
    )


def block(q: Any, k_cache: Any, v_cache: Any, lengths: Any, new: Any) -> Any:
    return flash_decode(q * 2, k_cache, v_cache, lengths, k_new=new, v_new=new + 1, window=9) + 1


def expected(q: Any, k_cache: Any, v_cache: Any, lengths: Any, new: Any) -> Any:
    """What `block` computes and writes, with the reference."""
    for b, length in enumerate(lengths.tolist()):
        k_cache[b, :, length - 1], v_cache[b, :, length - 1] = new[b, :, 0], new[b, :, 0] + 1
    return decode(q * 2, k_cache, v_cache, lengths, window=9) + 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiles_as_one_graph_that_writes_the_cache(backend: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(block, fullgraph=True, backend=backend, dynamic=True)
    for batch, keys, lengths in ((2, 30, [30, 4]), (3, 140, [130, 1, 7])):
        k_cache, v_cache = random(batch, 2, keys, 16), random(batch, 2, keys, 16)
        wanted_k, wanted_v = k_cache.clone(), v_cache.clone()
        q, new, data = random(batch, 4, 1, 16), random(batch, 2, 1, 16), torch.tensor(lengths)
        wanted = expected(q, wanted_k, wanted_v, data, new)
        assert torch.allclose(compiled(q, k_cache, v_cache, data, new), wanted, atol=1e-5)
        assert torch.equal(k_cache, wanted_k) and torch.equal(v_cache, wanted_v)
    torch._dynamo.reset()


def test_exports() -> None:
    class Block(torch.nn.Module):
        def forward(self, q: Any, k_cache: Any, v_cache: Any, lengths: Any, new: Any) -> Any:
            return block(q, k_cache, v_cache, lengths, new)

    def arguments() -> tuple[Any, ...]:
        cache = random(2, 2, 30, 16)
        return random(2, 4, 1, 16), cache, cache.clone(), LENGTHS, random(2, 2, 1, 16)

    exported = torch.export.export(Block(), arguments()).module()
    assert torch.allclose(exported(*arguments()), expected(*arguments()), atol=1e-5)


def test_meta_tensors() -> None:
    q = torch.empty(4, 3, 2, 8, device="meta", dtype=torch.bfloat16).transpose(0, 1)
    cache = torch.empty(3, 2, 50, 8, device="meta", dtype=torch.bfloat16)
    found = flash_decode(q, cache, cache, torch.empty(3, device="meta", dtype=torch.int32))
    assert found.device.type == "meta" and found.shape == q.shape and found.is_contiguous()


def test_gradients_are_refused() -> None:
    q, cache = random(1, 1, 1, 8).requires_grad_(), random(1, 1, 9, 8)
    with pytest.raises(errors.NoBackwardError, match="no_grad"):
        flash_decode(q, cache, cache, torch.tensor([9])).sum().backward()
    with torch.no_grad():
        assert not flash_decode(q, cache, cache, torch.tensor([9])).requires_grad


CALL: dict[str, Any] = {
    "q": random(2, 4, 2, 8),
    "k_cache": random(2, 2, 20, 8),
    "v_cache": random(2, 2, 20, 8),
    "seq_lens": LENGTHS,
}
PAGED = {"k_cache": random(4, 2, 7, 8), "v_cache": random(4, 2, 7, 8), "block_table": TABLE}
NEW = {"k_new": random(2, 2, 2, 8), "v_new": random(2, 2, 2, 8)}
WRONG: dict[str, tuple[type[Exception], str, dict[str, Any]]] = {
    "rank": (errors.ShapeError, "`q`", {"q": CALL["q"][0]}),
    "float64": (errors.DtypeError, "`q`", {"q": CALL["q"].double()}),
    "sparse": (errors.ArgumentError, "`q`", {"q": CALL["q"].to_sparse()}),
    "mixed types": (errors.DtypeError, "`k_cache`", {"k_cache": CALL["k_cache"].half()}),
    "batch": (errors.ShapeError, "block_table", {"k_cache": PAGED["k_cache"]}),
    "head dimension": (errors.ShapeError, "`v_cache`", {"v_cache": CALL["v_cache"][..., :4]}),
    "cache sizes": (errors.ShapeError, "`v_cache`", {"v_cache": CALL["v_cache"][:, :, :9]}),
    "heads": (errors.ShapeError, "`k_cache`", {"q": CALL["q"][:, :3]}),
    "too many tokens": (errors.ShapeError, "1 to 8", {"q": random(2, 4, 9, 8)}),
    "float lengths": (errors.DtypeError, "`seq_lens`", {"seq_lens": LENGTHS.float()}),
    "lengths of another batch": (errors.ShapeError, "`seq_lens`", {"seq_lens": LENGTHS[:1]}),
    "window": (errors.ArgumentError, "`window`", {"window": 0}),
    "softcap": (errors.ArgumentError, "`softcap`", {"softcap": -1.0}),
    "sinks": (errors.ShapeError, "`sinks`", {"sinks": torch.zeros(2)}),
    "rank of the table": (errors.ShapeError, "`block_table`", {**PAGED, "block_table": TABLE[0]}),
    "heads of new keys": (errors.ShapeError, "`k_new`", {"k_new": CALL["q"], "v_new": CALL["q"]}),
    "other new values": (errors.ShapeError, "`v_new`", {**NEW, "v_new": NEW["v_new"][:, :, :1]}),
    "no new values": (errors.ArgumentError, "`v_new`", {"k_new": NEW["k_new"]}),
}
WRONG_DATA: dict[str, tuple[str, dict[str, Any]]] = {
    "too long": ("`seq_lens`", {"seq_lens": torch.tensor([20, 21])}),
    "negative": ("`seq_lens`", {"seq_lens": torch.tensor([-1, 2])}),
    "too long for the table": ("`seq_lens`", {**PAGED, "seq_lens": torch.tensor([22, 2])}),
    "no such block": ("`block_table`", {**PAGED, "seq_lens": torch.tensor([20, 8])}),
    "too long to write": ("update_cache", {**NEW, "seq_lens": torch.tensor([20, 21])}),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_name_the_argument(case: str) -> None:
    kind, named, changes = WRONG[case]
    for device in ("cpu", "meta"):
        call = {
            name: value.to(device) if isinstance(value, torch.Tensor) and not value.is_sparse else value
            for name, value in {**CALL, **changes}.items()
        }
        with pytest.raises(kind, match=named) as caught:
            flash_decode(**call)
        assert "found:" in str(caught.value) and "allowed:" in str(caught.value)


@pytest.mark.parametrize("case", WRONG_DATA)
def test_errors_in_the_data_name_the_argument(case: str) -> None:
    named, changes = WRONG_DATA[case]
    with pytest.raises(errors.BoundsError, match=named):
        flash_decode(**{**CALL, **changes})


def test_an_expanded_cache_cannot_be_written() -> None:
    shared = random(1, 2, 20, 8).expand(2, -1, -1, -1)
    with pytest.raises(errors.ArgumentError, match="expanded"):
        flash_decode(CALL["q"], shared, shared, LENGTHS, **NEW)


@pytest.mark.parametrize("growing", [False, True], ids=["static", "growing"])
def test_generating_stages_three_programs(growing: bool) -> None:
    """32 tokens past a power of two, in a batch of different lengths: two programs that read, one that writes."""
    depth = 24 + 8 * growing
    k_cache, v_cache = random(2, 2, 300, depth), random(2, 2, 300, depth)
    before = len(kernel._cache) + len(write_rows._cache)
    for length in range(240, 272):
        q, lengths = random(2, 4, 1, depth), torch.tensor([length, length - 200])
        new = {} if growing else {"k_new": random(2, 2, 1, depth), "v_new": random(2, 2, 1, depth)}
        caches = [c[:, :, : length if growing else 300] for c in (k_cache, v_cache)]
        found = flash_decode(q, *caches, lengths, **new)
    assert torch.allclose(found, decode(q, k_cache, v_cache, lengths), atol=1e-5)
    assert len(kernel._cache) + len(write_rows._cache) - before == (2 if growing else 3)


@pytest.mark.slow
def test_without_torch() -> None:
    """The front door says what to install."""
    code = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else found(name, *rest)
sys.modules["torch"] = None
from nki_lib.attention.flash_decode.api import flash_decode
try:
    flash_decode(1, 2, 3, 4)
except ImportError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "open-nki[torch]" in run.stdout, run.stderr
