"""`use_kernels`: a model's modules run our kernels, what was swapped is reported, and it can be undone.

A swapped module keeps its class, its parameters and its name; only its `forward` is another. So checkpoints, optimizers
and hooks see no change.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any

from torch import nn

from nki import errors
from nki_lib import hf
from nki_lib.hf import modules
from nki_lib.hf.experts import KEPT, experts
from nki_lib.hf.loss import causal_lm_loss
from nki_lib.hf.replacement import Replacement, difference, obstacle

_OFFERS: dict[str, Callable[[nn.Module], Iterator[Replacement]]] = {
    "moe": experts,
    "router": modules.routers,
    "mamba": modules.mixers,
    "mlp": modules.mlps,
    "norm": modules.norms,
    "linear": modules.linears,
    "embedding": modules.embeddings,
}


@dataclass(frozen=True)
class Swapped:
    """A module that runs our kernels."""

    name: str
    found: str
    kernel: str


@dataclass(frozen=True)
class Left:
    """A module that is as it was."""

    name: str
    found: str
    why: str


@dataclass
class Report:
    """What `use_kernels` did. `print(report)` shows it, `report.undo()` or leaving `with report:` takes it back."""

    model: str
    swapped: list[Swapped] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    _undo: list[Callable[[], Any]] = field(default_factory=list, repr=False)

    def undo(self) -> None:
        """Make the model as it was; a second time nothing happens."""
        while self._undo:
            self._undo.pop()()

    def __enter__(self) -> Report:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.undo()

    def __str__(self) -> str:
        groups: dict[tuple[str, str], list[str]] = {}
        for swap in self.swapped:
            groups.setdefault((swap.kernel, swap.found), []).append(swap.name)
        lines = [f"{self.model}: {len(self.swapped)} modules run kernels of nki_lib"]
        lines += _columns([(k, f"{len(names)} x {f}", names[0]) for (k, f), names in groups.items()])
        groups = {}
        for left in self.left:
            groups.setdefault((left.why, left.found), []).append(left.name)
        if groups:
            lines.append(f"{len(self.left)} are left as they were")
            lines += _columns([(f"{len(n)} x {f}", n[0], why) for (why, f), n in groups.items()])
        return "\n".join(lines)


def _columns(rows: list[tuple[str, str, str]]) -> list[str]:
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(2)]
    return [f"  {a:{widths[0]}}  {b:{widths[1]}}  {c}" for a, b, c in rows]


def swap(model: nn.Module, kinds: Iterable[str]) -> Report:
    """The work of `nki_lib.hf.use_kernels`, which explains the arguments."""
    wanted = (kinds,) if isinstance(kinds, str) else tuple(kinds)
    unknown = [kind for kind in wanted if kind not in hf.KINDS]
    if unknown:
        raise errors.ArgumentError(
            "use_kernels: there is no such kind of module",
            operand="kinds",
            found=", ".join(map(repr, unknown)),
            allowed=", ".join(hf.KINDS),
        )
    if not isinstance(model, nn.Module):
        raise errors.ArgumentError(
            "use_kernels swaps the modules of a model",
            operand="model",
            found=type(model).__name__,
            allowed="a torch.nn.Module",
        )
    report = Report(type(model).__name__)
    try:
        settled = set()
        for name, part in _models_in(model):
            if "attention" in wanted:
                settled |= _swap_attention(name, part, report)
            if "loss" in wanted:
                _swap_loss(name, part, report)
        _swap_modules(model, [_OFFERS[kind] for kind in _OFFERS if kind in wanted], settled, report)
    except BaseException:
        report.undo()
        raise
    return report


def _models_in(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """The model, or what is a model of Transformers inside it: the outermost ones, with the prefix of their names."""
    inside: set[nn.Module] = set()
    for name, module in model.named_modules():
        if module not in inside and hasattr(module, "set_attn_implementation"):
            inside.update(module.modules())
            yield f"{name}." if name else "", module


def _swap_modules(model: nn.Module, offers: list[Any], settled: set[nn.Module], report: Report) -> None:
    """Walk through the model; what lies inside a swapped module is no longer called. `settled` needs no report."""
    covered: set[nn.Module] = set()
    known: dict[Any, tuple[int, str | None]] = {}
    for name, module in model.named_modules():
        if module in covered:
            continue
        taken, why = _choose(module, offers, known)
        found = type(module).__name__
        if taken is None:
            holds = any(True for _ in module.parameters(recurse=False)) and module not in settled
            if why is not None or holds:
                report.left.append(Left(name, found, why or "no kernel for it"))
            if "forward" in module.__dict__:  # somebody's, who may not call the children
                covered.update(inner for inner in module.modules() if "forward" not in inner.__dict__)
            continue
        module.forward = partial(taken.forward, module)
        report._undo.append(
            lambda module=module: [module.__dict__.pop(key, None) for key in ("forward", KEPT)]
        )
        report.swapped.append(Swapped(name, found, taken.kernel))
        covered.update(_inside(module, taken))


def _inside(module: nn.Module, offer: Replacement) -> set[nn.Module]:
    """The modules that are no longer called."""
    children = module.children() if offer.covers is None else (getattr(module, c) for c in offer.covers)
    return {inner for child in children for inner in child.modules()}


def _choose(
    module: nn.Module, offers: list[Any], known: dict[Any, Any]
) -> tuple[Replacement | None, str | None]:
    """The first offer that computes the same, or why none does. Modules that are alike are tried once."""
    candidates = [candidate for offer in offers for candidate in offer(module)]
    if not candidates:
        return None, None
    why = obstacle(module, _inside(module, candidates[0]))
    if why is not None:
        return None, why
    key = _likeness(module)
    if key not in known:
        reasons = []
        for index, candidate in enumerate(candidates):
            reasons.append(difference(module, candidate))
            if reasons[-1] is None:
                known[key] = index, None
                break
        else:
            known[key] = -1, reasons[0]
    index, why = known[key]
    return (None, why) if index < 0 else (candidates[index], None)


def _likeness(module: nn.Module) -> tuple[Any, ...]:
    """Classes, shapes of parameters, and all numbers, words and flags that the module and what is inside it hold."""
    shapes = tuple((n, tuple(p.shape), p.dtype) for n, p in module.named_parameters())
    plain = (bool, int, float, str, tuple, list, type(None))
    facts = [
        (
            type(part),
            sorted(
                (k, repr(v)) for k, v in part.__dict__.items() if isinstance(v, plain) and k != "training"
            ),
        )
        for part in module.modules()
    ]
    return shapes, repr(facts)


def _asks_for_attention(module: nn.Module) -> bool:
    """Whether the module's forward looks its attention up in Transformers' interface."""
    code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
    return code is not None and "ALL_ATTENTION_FUNCTIONS" in code.co_names


def _dropout_of(layer: Any) -> float:
    """The dropout of a layer's attention weights, under the names that models give it."""
    names = ("attention_dropout", "attn_dropout", "attn_pdrop", "attention_probs_dropout_prob", "dropout")
    found = [getattr(layer, name, 0.0) for name in names]
    rates = [value.p if isinstance(value, nn.Dropout) else value for value in found]
    return max(rate for rate in rates if isinstance(rate, (int, float)))


def _swap_attention(prefix: str, model: Any, report: Report) -> set[nn.Module]:
    """Tell Transformers, whose layers ask for it; return those that do."""
    layers = {module: prefix + name for name, module in model.named_modules() if _asks_for_attention(module)}
    if not layers:
        return set()
    configs = [m.config for m in model.modules() if hasattr(m, "set_attn_implementation")]
    before = [(config, config._attn_implementation) for config in configs]
    why = None
    if model.training and any(_dropout_of(layer) for layer in layers):
        rate = max(_dropout_of(layer) for layer in layers)
        why = f"attention weights have a dropout of {rate}, which our kernels do not compute"
    if model.config._attn_implementation == hf.NAME:
        why = f'it is set to "{hf.NAME}" already'
    if why is None:
        hf.register()
        try:
            model.set_attn_implementation(hf.NAME)
        except (ValueError, TypeError) as error:  # a model may refuse any implementation
            why = str(error).splitlines()[0]
    for module, name in layers.items():
        found = type(module).__name__
        if why is None:
            report.swapped.append(Swapped(name, found, "flash_attention, flash_decode"))
        else:
            report.left.append(Left(name, found, why))
    if why is None:
        report._undo.append(lambda: _set_back(model, before))
    return set(layers)


def _set_back(model: Any, before: list[tuple[Any, str]]) -> None:
    """The implementations of the model and of the models inside it, as they were."""
    model.set_attn_implementation(before[0][1])
    for config, name in before:
        config._attn_implementation = name


def _swap_loss(prefix: str, model: Any, report: Report) -> None:
    if getattr(model, "loss_type", None) is None:  # no model that knows a loss of its own
        return
    function, name = model.loss_function, f"{prefix}loss_function"
    found = getattr(function, "__name__", type(function).__name__)
    if found != "ForCausalLMLoss":
        why = "it runs our kernel already" if function is causal_lm_loss else "no kernel for it"
        report.left.append(Left(name, found, why))
        return
    own = model.__dict__.get("_loss_function")
    model.loss_function = causal_lm_loss

    def back() -> None:
        model.__dict__.pop("_loss_function", None)
        if own is not None:
            model.loss_function = own

    report._undo.append(back)
    report.swapped.append(Swapped(name, found, "cross_entropy"))
