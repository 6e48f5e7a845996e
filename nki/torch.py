"""`nki_op`: a PyTorch operator from an NKI kernel, or from a Python function that launches kernels.

The operator works in eager mode and under `torch.compile(fullgraph=True)`, because it is a `torch.library.custom_op`
with a fake implementation. A function that launches a kernel several times, say once per batch element, lets each
launch write into its slice of the output with `run_into`. Importing this module imports torch; `import nki` does not.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, get_args, get_origin

import numpy as np

from nki import errors
from nki.arguments import from_torch
from nki.dtypes import as_dtype
from nki.ir.program import Program
from nki.jit import Kernel, Launch, Options, split
from nki.loaded import LoadedKernel
from nki.target import Target

try:
    import torch
    from torch import Tensor
    from torch.library import CustomOpDef, custom_op, infer_schema
except ImportError as error:
    raise errors.MissingExtraError(
        "nki.torch needs PyTorch, which is not installed",
        remedy="pip install 'open-nki[torch]'",
    ) from error

__all__ = ["nki_op", "run_into"]


def nki_op(
    name: str,
    fn: Callable[..., Any] | Kernel | Launch | LoadedKernel | None = None,
    *,
    fake: Callable[..., Any] | None = None,
    mutates_args: str | Iterable[str] = (),
    schema: str | None = None,
    target: str | Target | None = None,
) -> Any:
    """Register `fn` as the operator `name` ("library::op") and return it as a callable. Usable as a decorator.

    fn: a kernel, whose outputs become the operator's, or a function of tensors that launches kernels.
    fake: a function with the same parameters that makes empty outputs of the right shape, dtype and strides. For a
    kernel it may be left out: the shapes are then those of the program staged for the example's shapes (which needs
    concrete sizes, not dynamic ones).
    mutates_args: names of the arguments the operator writes.
    schema: e.g. "(Tensor a, Tensor b, float scale) -> Tensor"; by default inferred from annotations. Parameters of a
    kernel that have none, or `Any`, are tensors, or of the type of their default value; it returns one tensor, or as
    many as its annotation `tuple[...]` has members.
    target: the generation a kernel is staged for; the default is the environment's.

    The operator has no gradient: a backward pass through it raises NoBackwardError, unless you register one with the
    result's `register_autograd`. Example:

        @nki_op("my_library::scale", fake=lambda x, factor: torch.empty_like(x))
        def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
            return scale_kernel(x, factor)

    Raises ArgumentError for a name without a library, or if no fake can be derived.
    """
    if "::" not in name:
        raise errors.ArgumentError(
            f"an operator needs a library and a name, got {name!r}",
            operand="name",
            found=name,
            allowed='"library::operator"',
            remedy=f'nki_op("my_library::{name}")',
        )
    if fn is None:
        return lambda function: nki_op(
            name, function, fake=fake, mutates_args=mutates_args, schema=schema, target=target
        )
    if isinstance(fn, (Kernel, Launch, LoadedKernel)):
        return _kernel_op(name, fn, fake, mutates_args, schema, target)
    if fake is None:
        raise errors.ArgumentError(
            f"{name}: a Python function needs a fake implementation",
            operand="fake",
            found="None",
            allowed="a function that returns empty outputs",
            remedy="pass fake=lambda q, k, v: torch.empty_like(q), or decorate a kernel directly",
        )
    return _register(name, fn, fake, mutates_args, schema)


def _register(
    name: str,
    function: Callable[..., Any],
    fake: Callable[..., Any],
    mutates_args: str | Iterable[str],
    schema: str | None,
) -> CustomOpDef:
    operator = custom_op(name, function, mutates_args=mutates_args, schema=schema, device_types="cpu")
    operator.register_fake(fake)

    def backward(*_: Any) -> Any:
        raise errors.NoBackwardError(
            f"{name} has no gradient",
            found="a backward pass through it, or torch.compile of a function whose inputs require gradients",
            allowed="the forward pass",
            remedy="call it under torch.no_grad() or on detached tensors, or add a gradient with register_autograd",
        )

    if not mutates_args and "!" not in (schema or ""):  # PyTorch takes no gradient of an operator that writes
        operator.register_autograd(backward)
    return operator


def run_into(
    out: Tensor | Sequence[Tensor], kernel: Kernel | Launch | LoadedKernel, *args: Any, **kwargs: Any
) -> None:
    """Run a kernel and write its result, or its results in order, into tensors that exist already.

    They have the shapes and dtypes of the results. Contiguous ones, such as `batch[i]` of a contiguous batch, are
    written by the kernel itself, others through a copy. After an error their content is undefined.

    Example: run_into(out[i], scale_kernel, x[i], 2.0)
    """
    plain, grid = split(kernel)
    tensors = [out] if isinstance(out, Tensor) else list(out)
    written = [t if t.is_contiguous() else t.new_empty(t.shape) for t in tensors]
    plain.run(Options(grid=grid), args, kwargs, [from_torch(t) for t in written])
    for tensor, values in zip(tensors, written):
        if values is not tensor:
            tensor.copy_(values)


def _kernel_op(
    name: str,
    launch: Kernel | Launch | LoadedKernel,
    fake: Callable[..., Any] | None,
    mutates_args: str | Iterable[str],
    schema: str | None,
    target: str | Target | None,
) -> CustomOpDef:
    kernel, grid = split(launch)
    options = Options(target=target, grid=grid)

    declared = _declared_mutations(mutates_args, schema)
    checked = False

    def implementation(*args: Any, **kwargs: Any) -> Any:
        nonlocal checked
        if not checked and declared is not None and isinstance(kernel, Kernel):
            _check_mutations(name, kernel.compiled(options, args, kwargs).program, declared)
            checked = True
        return kernel.run(options, args, kwargs)

    def shapes_of_the_program(*args: Any, **kwargs: Any) -> Any:
        blank = [_blank(arg) for arg in args]
        program = kernel.compiled(
            options, tuple(blank), {key: _blank(value) for key, value in kwargs.items()}
        ).program
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        outputs = [
            tensors[0].new_empty(buffer.shape, dtype=getattr(torch, buffer.dtype))
            for buffer in program.results
        ]
        return tuple(outputs) if program.result_form == "tuple" else outputs[0] if outputs else None

    if schema is None and isinstance(kernel, Kernel):
        schema = _schema(kernel, mutates_args)
    return _register(name, implementation, fake or shapes_of_the_program, mutates_args, schema)


def _declared_mutations(mutates_args: str | Iterable[str], schema: str | None) -> frozenset[str] | None:
    """The arguments that an operator says it writes; `None` if it leaves them open."""
    if mutates_args == "unknown" or schema is not None:
        return None
    return frozenset(mutates_args)


def _check_mutations(name: str, program: Program, declared: frozenset[str]) -> None:
    """Raise if the kernel writes an argument that the operator has not declared, or returns one, which PyTorch's
    compiler could not know."""
    written = [
        b for b in program.arguments if b.name in program.mutated and b.label.split("[")[0] not in declared
    ]
    returned = [b for b in program.arguments if b in program.results]
    if not written and not returned:
        return
    found = ", ".join(f"`{b.label}`" for b in written or returned)
    raise errors.ArgumentError(
        f"{name}: the kernel {'writes' if written else 'returns'} its argument {found}",
        operand=found,
        found=f"mutates_args={sorted(declared)!r}",
        allowed="an operator that names what it writes in mutates_args, and returns nothing or new tensors",
        remedy="register a function of the kernel: with mutates_args=('x',) if it writes x, and without returning x; "
        "or let the kernel write into an output of its own",
    )


def _blank(value: Any) -> Any:
    """An array of the shape of a fake tensor: only shapes matter for staging."""
    if not isinstance(value, Tensor):
        return value
    return np.zeros([int(size) for size in value.shape], as_dtype(value.dtype).numpy)


def _schema(kernel: Kernel, mutates_args: str | Iterable[str]) -> str:
    """The operator's schema, with tensors and default values' types where the kernel has no annotations."""
    try:
        known = inspect.get_annotations(kernel.func, eval_str=True)
    except (NameError, AttributeError, SyntaxError):
        known = {}
    parameters = []
    for parameter in kernel.signature.parameters.values():
        annotation = known.get(parameter.name)
        if annotation not in (Tensor, int, float, bool, str):
            has_default = parameter.default not in (inspect.Parameter.empty, None)
            annotation = type(parameter.default) if has_default else Tensor
        parameters.append(parameter.replace(annotation=annotation))
    results = len(get_args(known.get("return"))) if get_origin(known.get("return")) is tuple else 1
    returned = Tensor if results == 1 else tuple[(Tensor,) * results]  # type: ignore[misc]

    def prototype() -> None: ...

    prototype.__signature__ = inspect.Signature(parameters, return_annotation=returned)  # type: ignore[attr-defined]
    prototype.__annotations__ = {p.name: p.annotation for p in parameters}
    return str(infer_schema(prototype, mutates_args=mutates_args))
