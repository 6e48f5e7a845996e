"""What a recipe is: a small frozen dataclass with an NKI face and a PyTorch face. `recipes.py` has the usual ones.

A recipe of your own:

    @dataclass(frozen=True)
    class Distance(ScoreRecipe):
        weight: float

        def apply(self, scores, q_start, k_start, head):          # NKI: changes a float32 tile [m, n] in SBUF in place
            m, n = scores.shape
            distance = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.sbuf)
            nisa.iota(dst=distance, pattern=[[1, n]], offset=k_start - q_start, channel_multiplier=-1)
            nisa.scalar_tensor_tensor(
                dst=scores, data=distance, op0=nl.multiply, operand0=self.weight, op1=nl.add, operand1=scores
            )

        def torch(self, score, b, h, q_idx, kv_idx):              # the same, as PyTorch's flex_attention wants it
            return score + self.weight * (kv_idx - q_idx)

        def slope(self, score, b, h, q_idx, kv_idx):              # for the backward pass: d torch(score) / d score
            return score.new_ones(())

Fields are numbers, strings, tuples of these, recipes, or tensors. Tensors are data: they are arguments of the program,
not part of it, so two recipes that differ only in them are equal and run the same program.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

from nki import errors

EMPTY, PARTIAL, FULL = 0, 1, 2
"""What a mask leaves of a block of scores: nothing, some, all."""

_TENSOR = "tensor"


class Recipe:
    """A change to scores, in NKI and in PyTorch. Subclasses are frozen dataclasses; see the module's example."""

    def apply(self, scores: Any, q_start: int, k_start: int, head: int) -> None:
        """Change a tile of scores in place, in NKI.

        scores: [m, n] float32 in SBUF; row p is query q_start + p, column j is key k_start + j. head: the number of the
        query head within its launch, into the tensors that `for_launch` left.
        """
        raise NotImplementedError

    def for_launch(self, batch: int, heads: slice) -> Recipe:
        """The recipe with its tensors cut to one batch element and the query heads of one key head."""
        parts = {
            f.name: value.for_launch(batch, heads)
            for f in dataclasses.fields(self)  # type: ignore[arg-type]
            if isinstance(value := getattr(self, f.name), Recipe)
        }
        return self._with(parts) if parts else self

    def check(self, shape: tuple[int, int, int, int]) -> None:
        """Raise if the tensors in the fields do not fit calls of `shape` = (B, Hq, Sq, Sk)."""
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, Recipe):
                value.check(shape)

    def tensors(self) -> list[Any]:
        """The tensors in the fields, in their order."""
        found: list[Any] = []
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, Recipe):
                found += value.tensors()
            elif is_tensor(value):
                found.append(value)
        return found

    def with_tensors(self, tensors: Iterator[Any]) -> Recipe:
        """The recipe with other tensors in the places of its own."""
        parts = {}
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, Recipe):
                parts[field.name] = value.with_tensors(tensors)
            elif is_tensor(value) or isinstance(value, Hole):
                parts[field.name] = next(tensors)
        return self._with(parts)

    def text(self) -> str:
        """The recipe without its tensors, as a text that `from_text` reads: how it passes through an operator."""
        fields = [f"{f.name}={_text(getattr(self, f.name))}" for f in dataclasses.fields(self)]  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(fields)})"

    def _with(self, parts: dict[str, Any]) -> Recipe:
        made = copy.copy(self)
        for name, value in parts.items():
            object.__setattr__(made, name, value)
        return made


class ScoreRecipe(Recipe):
    """Changes scores: `a >> b` applies a, then b."""

    def torch(self, score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        """The changed score, in PyTorch. Indices may be scalars or tensors that broadcast with the score."""
        raise NotImplementedError

    def slope(self, score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        """The derivative of `torch` by the score, for the backward pass. Needed only there."""
        raise errors.NoBackwardError(
            f"the score recipe {type(self).__name__} has no gradient",
            found="a recipe without the method `slope`",
            allowed="recipes that say how their result changes with the score",
            remedy="define slope(self, score, b, h, q_idx, kv_idx), or call under torch.no_grad()",
        )

    def __call__(self, score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return self.torch(score, b, h, q_idx, kv_idx)

    def __rshift__(self, other: ScoreRecipe) -> ScoreRecipe:
        return Chain(self, other) if isinstance(other, ScoreRecipe) else NotImplemented


class MaskRecipe(Recipe):
    """Says which keys a query sees; `apply` writes minus infinity over the others. `a & b` sees what both see."""

    def torch(self, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        """True where the query sees the key, in PyTorch."""
        raise NotImplementedError

    def cover(self, q_start: int, q_stop: int, k_start: int, k_stop: int) -> int:
        """EMPTY, PARTIAL or FULL: what is known of a block without looking at tensors. PARTIAL is always right."""
        return PARTIAL

    def __call__(self, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return self.torch(b, h, q_idx, kv_idx)

    def __and__(self, other: MaskRecipe) -> MaskRecipe:
        return Both(self, other) if isinstance(other, MaskRecipe) else NotImplemented


@dataclasses.dataclass(frozen=True)
class Chain(ScoreRecipe):
    """One score recipe after another."""

    first: ScoreRecipe
    second: ScoreRecipe

    def apply(self, scores: Any, q_start: int, k_start: int, head: int) -> None:
        self.first.apply(scores, q_start, k_start, head)
        self.second.apply(scores, q_start, k_start, head)

    def torch(self, score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return self.second.torch(self.first.torch(score, b, h, q_idx, kv_idx), b, h, q_idx, kv_idx)

    def slope(self, score: Any, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        between = self.first.torch(score, b, h, q_idx, kv_idx)
        outer = self.second.slope(between, b, h, q_idx, kv_idx)
        return outer * self.first.slope(score, b, h, q_idx, kv_idx)


@dataclasses.dataclass(frozen=True)
class Both(MaskRecipe):
    """What two masks both see."""

    first: MaskRecipe
    second: MaskRecipe

    def apply(self, scores: Any, q_start: int, k_start: int, head: int) -> None:
        self.first.apply(scores, q_start, k_start, head)
        self.second.apply(scores, q_start, k_start, head)

    def torch(self, b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        return self.first.torch(b, h, q_idx, kv_idx) & self.second.torch(b, h, q_idx, kv_idx)

    def cover(self, q_start: int, q_stop: int, k_start: int, k_stop: int) -> int:
        block = (q_start, q_stop, k_start, k_stop)
        return min(self.first.cover(*block), self.second.cover(*block))


class Hole:
    """Stands where a tensor goes."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hole)

    def __hash__(self) -> int:
        return 0


HOLE = Hole()


def is_tensor(value: Any) -> bool:
    """Whether a field holds data: a tensor of PyTorch, NumPy or NKI."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _text(value: Any) -> str:
    if isinstance(value, Recipe):
        return value.text()
    if is_tensor(value) or isinstance(value, Hole):
        return _TENSOR
    if isinstance(value, tuple):
        return "(" + "".join(_text(item) + ", " for item in value) + ")"
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    raise errors.ArgumentError(
        "a field of a recipe cannot be part of an operator's arguments",
        found=f"{value!r}, a {type(value).__name__}",
        allowed="numbers, strings, None, tuples of these, recipes and tensors",
        remedy="keep in the recipe's fields only what says what to compute",
    )


def from_text(text: str) -> Any:
    """The recipe that `text()` describes, with holes for its tensors; `None` for an empty text. Runs no code."""
    return _read(ast.parse(text, mode="eval").body) if text else None


def _read(node: ast.expr) -> Any:
    if isinstance(node, ast.Name) and node.id == _TENSOR:
        return HOLE
    if isinstance(node, ast.Tuple):
        return tuple(_read(item) for item in node.elts)
    if not isinstance(node, ast.Call):
        return ast.literal_eval(node)
    name = ast.unparse(node.func)
    classes = {kind.__name__: kind for kind in _subclasses(Recipe)}
    if name not in classes:
        raise errors.ArgumentError(
            f"flex_attention: there is no recipe {name}",
            found=name,
            allowed=", ".join(sorted(classes)),
            remedy="import the module that defines the recipe before the operator is called",
        )
    made = object.__new__(classes[name])
    for keyword in node.keywords:
        object.__setattr__(made, str(keyword.arg), _read(keyword.value))
    return made


def _subclasses(kind: type[Recipe]) -> list[type[Recipe]]:
    """All classes of recipes. There is no table of them: it would change with every class, and make programs stale."""
    return [found for direct in kind.__subclasses__() for found in (direct, *_subclasses(direct))]
