"""`torch.ops.nki_lib.flex_attention` as PyTorch sees it: recipes as text, fake, compile, export, errors, launches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention.flex_attention import create_block_mask  # noqa: E402

import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402
from nki import errors  # noqa: E402
from nki_lib.attention.flex_attention import recipes  # noqa: E402
from nki_lib.attention.flex_attention.api import flex_attention  # noqa: E402
from nki_lib.attention.flex_attention.kernel import flex_attention as kernel  # noqa: E402
from nki_lib.attention.flex_attention.recipe import HOLE, Recipe, ScoreRecipe, from_text  # noqa: E402
from nki_lib.attention.flex_attention.reference import attention  # noqa: E402


def random(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


IDS = torch.arange(40) // 7
SCORE = recipes.alibi([0.1, 0.2, 0.3, -0.4]) >> recipes.softcap(3.0)
MASK = recipes.causal() & recipes.document_mask(IDS)


def function(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    """What MASK says, without a recipe."""
    return (q_idx >= kv_idx) & (IDS[q_idx] == IDS[kv_idx])


@dataclass(frozen=True)
class Distance(ScoreRecipe):
    """A recipe of a user: score + weight * |j - i|, and a table by head that is data."""

    weight: float

    def apply(self, scores: Any, q_start: int, k_start: int, head: int) -> None:
        m, n = scores.shape
        distance = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.sbuf)
        nisa.iota(dst=distance, pattern=[[1, n]], offset=k_start - q_start, channel_multiplier=-1)
        nisa.tensor_scalar(
            dst=distance, data=distance, op0=nl.abs, operand0=None, op1=nl.multiply, operand1=self.weight
        )
        nisa.tensor_tensor(dst=scores, data1=scores, data2=distance, op=nl.add)

    def torch(self, score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return score + self.weight * (kv_idx - q_idx).abs()


def test_a_recipe_of_the_user() -> None:
    q = random(1, 2, 150, 8)
    score = Distance(-0.25) >> recipes.softcap(4.0)
    assert torch.allclose(
        flex_attention(q, q, q, score_mod=score), attention(q, q, q, score_mod=score), atol=1e-5
    )
    q.requires_grad_()
    with pytest.raises(errors.NoBackwardError, match="slope"):
        flex_attention(q, q, q, score_mod=score).sum().backward()


@pytest.mark.parametrize(
    "recipe",
    [
        recipes.causal(-3) & recipes.sliding_window(8) & recipes.prefix_lm(5),
        recipes.softcap(0.1) >> Distance(-1e-30),
        recipes.document_mask(IDS) & recipes.prefix_lm(torch.tensor([3])),
    ],
    ids=str,
)
def test_recipes_are_values_and_pass_through_text(recipe: Recipe) -> None:
    read = from_text(recipe.text())
    assert read == recipe and hash(read) == hash(recipe)
    assert read.text() == recipe.text()
    tensors = recipe.tensors()
    assert read.with_tensors(iter(tensors)).tensors() == tensors
    holes = read.with_tensors(iter([HOLE] * len(tensors)))
    assert not holes.tensors() and holes.text() == recipe.text()


def test_text_runs_no_code() -> None:
    with pytest.raises(errors.ArgumentError, match="no recipe print"):
        from_text("print()")
    with pytest.raises(ValueError, match="malformed"):
        from_text("Softcap(cap=1 if 1 else 2)")


@pytest.mark.parametrize("way", ["recipe", "tiles"])
@pytest.mark.parametrize("train", [False, True])
def test_opcheck(way: str, train: bool) -> None:
    q, k = random(1, 2, 20, 8), random(1, 1, 30, 8)
    kinds, tiles, block = None, None, [128, 128]
    if way == "tiles":
        kinds = torch.tensor([[[[1, 0, 2], [2, 1, 1]]]], dtype=torch.int8)
        tiles, block = random(3, 10, 10) > 0, [10, 10]
    mask = "" if way == "tiles" else recipes.document_mask(IDS).text()
    tensors = [t.clone().requires_grad_(train) for t in (q, k, k)]
    torch.library.opcheck(
        torch.ops.nki_lib.flex_attention,
        (*tensors, [IDS] if mask else [], kinds, tiles),
        {"score": "Softcap(cap=3.0)", "mask": mask, "block": block, "scale": 0.3},
    )


def test_compiled_for_all_lengths() -> None:
    def layer(q: Any) -> Any:
        mask = recipes.causal() & recipes.sliding_window(9)
        return flex_attention(q * 2, q, q, score_mod=recipes.softcap(2.0), mask_mod=mask)

    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    for length in (20, 33, 130):
        q = random(2, 2, length, 8)
        assert torch.equal(compiled(q), layer(q))
    torch._dynamo.reset()


def test_exports() -> None:
    class Layer(torch.nn.Module):
        def forward(self, q: Any) -> Any:
            return flex_attention(q, q, q, score_mod=SCORE, mask_mod=MASK)

    q = random(1, 4, 40, 16)
    exported = torch.export.export(Layer(), (q,))
    assert torch.equal(exported.module()(q), Layer()(q))
    torch._dynamo.reset()


def test_meta_tensors() -> None:
    q = torch.empty(3, 4, 40, 8, device="meta", dtype=torch.bfloat16).transpose(0, 1)
    found = flex_attention(q, q, q, mask_mod=MASK)
    assert found.device.type == "meta" and found.shape == q.shape and found.is_contiguous()


Q = (2, 4, 6, 8)
WRONG: dict[str, tuple[type[Exception], str, Any]] = {
    "rank": (errors.ShapeError, "`q`", lambda q: (q[0], q, q)),
    "float64": (errors.DtypeError, "`q`", lambda q: (q.double(), q, q)),
    "sparse": (errors.ArgumentError, "`q`", lambda q: (q.to_sparse(), q, q)),
    "mixed types": (errors.DtypeError, "`k`", lambda q: (q, q.bfloat16(), q.bfloat16())),
    "batch": (errors.ShapeError, "`k`", lambda q: (q, q[:1], q[:1])),
    "head dimension": (errors.ShapeError, "`v`", lambda q: (q, q, q[..., :4])),
    "lengths": (errors.ShapeError, "`v`", lambda q: (q, q, q[:, :, :3])),
    "heads": (errors.ShapeError, "`k`", lambda q: (q, q[:, :3], q[:, :3])),
    "wide heads": (errors.ShapeError, "128", lambda q: (q.repeat(1, 1, 1, 17),) * 3),
}


@pytest.mark.parametrize("case", WRONG)
def test_errors_name_the_argument(case: str) -> None:
    kind, named, make = WRONG[case]
    with pytest.raises(kind, match=named) as caught:
        flex_attention(*make(random(*Q)))
    text = str(caught.value)
    assert "flex_attention" in text and "found:" in text and "allowed:" in text


def blocks(*shape: Any) -> Any:
    return create_block_mask(recipes.causal(), *shape, device="cpu")


WRONG_OPTIONS: dict[str, tuple[type[Exception], str, Any]] = {
    "function as mask": (errors.ArgumentError, "create_block_mask", lambda: {"mask_mod": function}),
    "function as score": (
        errors.ArgumentError,
        "ScoreRecipe",
        lambda: {"score_mod": lambda s, b, h, q, k: s},
    ),
    "mask as score": (errors.ArgumentError, "`score_mod`", lambda: {"score_mod": recipes.causal()}),
    "longer block mask": (errors.ShapeError, "`block_mask`", lambda: {"block_mask": blocks(1, 1, 6, 7)}),
    "heads of block mask": (errors.ShapeError, "`block_mask`", lambda: {"block_mask": blocks(1, 2, 6, 6)}),
    "slopes": (errors.ShapeError, "one per query head", lambda: {"score_mod": recipes.alibi([1.0, 2.0])}),
    "ids": (errors.ShapeError, "`ids`", lambda: {"mask_mod": recipes.document_mask(IDS[:5])}),
    "batch of ids": (
        errors.ShapeError,
        "`ids`",
        lambda: {"mask_mod": recipes.document_mask(IDS.expand(3, 40))},
    ),
    "prefix": (errors.ShapeError, "batch element", lambda: {"mask_mod": recipes.prefix_lm(IDS)}),
    "numpy": (errors.ArgumentError, "as_tensor", lambda: {"mask_mod": recipes.document_mask(IDS.numpy())}),
    "cap": (errors.ArgumentError, "`cap`", lambda: {"score_mod": recipes.softcap(0.0)}),
    "width": (errors.ArgumentError, "`width`", lambda: {"mask_mod": recipes.sliding_window(0)}),
    "offset": (errors.ArgumentError, "`offset`", lambda: {"mask_mod": recipes.causal(0.5)}),  # type: ignore[arg-type]
    "ids of three dimensions": (
        errors.ArgumentError,
        "`ids`",
        lambda: recipes.document_mask(random(2, 2, 2)),
    ),
}


@pytest.mark.parametrize("case", WRONG_OPTIONS)
def test_errors_of_recipes_and_block_masks(case: str) -> None:
    kind, named, make = WRONG_OPTIONS[case]
    q = random(*Q)
    with pytest.raises(kind, match=named) as caught:
        flex_attention(q, q, q, **make())
    assert "found:" in str(caught.value) and "allowed:" in str(caught.value)


def test_masks_and_scores_do_not_mix() -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        recipes.causal() & recipes.softcap(1.0)  # type: ignore[operator]
    with pytest.raises(TypeError, match="unsupported operand"):
        recipes.softcap(1.0) >> recipes.causal()  # type: ignore[operator]


def test_data_and_batches_stage_nothing_new() -> None:
    """Other ids, slopes, prefixes, batch sizes and head groups run the program that is there."""

    def call(batch: int, key_heads: int, seed: int) -> None:
        q, k = random(batch, 2 * key_heads, 40, 8), random(batch, key_heads, 40, 8)
        random_ids = torch.randint(0, 4, (batch, 40), generator=torch.Generator().manual_seed(seed))
        mask = recipes.document_mask(random_ids) & recipes.prefix_lm(torch.full((batch,), seed))
        flex_attention(q, k, k, score_mod=recipes.alibi([seed / 10.0] * 2 * key_heads), mask_mod=mask)

    call(1, 1, 1)
    before = len(kernel._cache)
    for batch, key_heads, seed in ((3, 1, 2), (1, 4, 3)):
        call(batch, key_heads, seed)
    assert len(kernel._cache) == before


def test_a_new_recipe_class_makes_no_program_stale() -> None:
    q = random(1, 1, 30, 8)
    flex_attention(q, q, q, mask_mod=recipes.causal())
    programs = [compiled for compiled, _ in kernel._cache.values()]

    @dataclass(frozen=True)
    class Unused(ScoreRecipe):
        """Defined later."""

    flex_attention(q, q, q, mask_mod=recipes.causal())
    assert [compiled for compiled, _ in kernel._cache.values()] == programs
