"""Every mistake a user can make, one class each.

An error says what is wrong, where (the user's file, line and code, and the chain of calls that led there), which
operand, what was found, what is allowed on which generation, and what to do. All derive from `NkiError` and, where
the documentation names a Python exception, from that one too. `NkiValidationError` is the family of hardware limits.
"""

from __future__ import annotations

from typing import ClassVar

from nki.diagnostic import Diagnostic as Diagnostic
from nki.span import Frame, Span


class NkiError(Exception):
    """Base of all errors of this project.

    `message` is one sentence; `operand`, `found`, `allowed` and `remedy` are the parts a tool may want apart.
    `span` says where in the user's source it happened (`None` when there is no source).
    """

    code: ClassVar[str] = "error"

    def __init__(
        self,
        message: str,
        *,
        operand: str | None = None,
        found: object = None,
        allowed: object = None,
        remedy: str | None = None,
        span: Span | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        Exception.__init__(self, message)  # not `super()`: a second base may want other arguments
        self.message = message
        self.operand = operand
        self.found = found
        self.allowed = allowed
        self.remedy = remedy
        self.span = span
        self.notes = notes

    def at(self, span: Span | None) -> NkiError:
        """This error, placed at `span` unless it already has a place."""
        if self.span is None:
            self.span = span
        return self

    def diagnostic(self, severity: str = "error") -> Diagnostic:
        """The same finding as a record. The message ends with the calls that led to the place."""
        where = self.span
        return Diagnostic(
            code=self.code,
            severity=severity,
            message="\n".join([self.explain(), *(where.calls() if where else [])]),
            file=where.file if where else "",
            line=where.line if where else 0,
        )

    def explain(self) -> str:
        """The message with operand, found, allowed, notes and remedy, but without the source excerpt."""
        lines = [self.message]
        for label, value in (("operand", self.operand), ("found", self.found), ("allowed", self.allowed)):
            if value is not None:
                lines.append(f"  {label + ':':9}{value}")
        lines += [f"  {note}" for note in self.notes]
        if self.remedy:
            lines.append(f"  {'help:':9}{self.remedy}")
        return "\n".join(lines)

    def __str__(self) -> str:
        first, *rest = self.explain().split("\n")
        excerpt = self.span.excerpt() if self.span else []
        return "\n".join([first, *excerpt, *rest])

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of a traceback: the text names the user's line, our own frames only hide it."""
        return [f"{type(self).__name__}: {self}"]


def raise_diagnostic(found: Diagnostic) -> None:
    """Raise the error class that a diagnostic's code belongs to."""
    classes = {kind.code: kind for kind in all_errors()}
    kind = classes.get(found.code, NkiValidationError)
    raise kind(found.message, span=Span((Frame(found.file, found.line, ""),)) if found.file else None)


def all_errors() -> list[type[NkiError]]:
    """Every error class of this module, bases first."""
    found: list[type[NkiError]] = [NkiError]
    for kind in found:
        found += [s for s in kind.__subclasses__() if s not in found and globals().get(s.__name__) is s]
    return found


class KernelError(NkiError, ValueError):
    """A kernel cannot be staged for a reason that has no class of its own."""

    code = "kernel"


class UserError(NkiError):
    """An exception of the kernel's own code (an assertion, a wrong index...), with its place and call chain."""

    code = "kernel-exception"


class UserAssertionError(UserError, AssertionError):
    """An `assert` in the kernel failed; its message stands unchanged in this error."""

    code = "kernel-assertion"


class OutsideKernelError(NkiError, RuntimeError):
    """An instruction was called while no kernel is being staged."""

    code = "outside-kernel"


class ArgumentError(NkiError, TypeError):
    """A kernel or an instruction was called with the wrong arguments."""

    code = "argument"


class UnknownKeywordError(ArgumentError):
    """A keyword that the function does not have."""

    code = "unknown-keyword"


class DtypeError(NkiError, TypeError):
    """A data type that NKI does not have or that an operand does not accept."""

    code = "dtype"


class FrozenRegisterError(ArgumentError, AssertionError):
    """A loop counter, or another register that belongs to the machine, was written."""

    code = "frozen-register"


class LoopStepError(ArgumentError, AssertionError):
    """The step of a loop on the device is not a positive integer known while staging."""

    code = "loop-step"


class LoopScopeError(NkiError, ValueError):
    """What belongs to a loop on the device, a tensor of its body or its counter, is used outside of it."""

    code = "loop-scope"


class OperatorError(NkiError, TypeError):
    """A token that is no operator, or an operator at a place where it is not allowed."""

    code = "operator"


class TargetError(NkiError, ValueError):
    """An unknown hardware generation, or an instruction that a generation does not have."""

    code = "target"


class ShapeError(NkiError, ValueError):
    """Shapes that do not fit together, or a view that cannot be made."""

    code = "shape"


class BoundsError(NkiError, IndexError):
    """An index, a slice or an access pattern that leaves its tensor."""

    code = "out-of-bounds"


class TruthValueError(NkiError, TypeError, ValueError):
    """A tile or a register was used where Python needs a value while staging."""

    code = "truth-value"


class SubsetError(NkiError, SyntaxError):
    """A Python construct that a kernel cannot contain."""

    code = "subset"

    @property
    def msg(self) -> str:  # type: ignore[override]
        """All of the text: Python's traceback printer shows this of a SyntaxError and nothing else."""
        return str(self)


class RemovedApiError(NkiError, NotImplementedError, AttributeError):
    """A name of an older release; the message names its replacement."""

    code = "removed"


class MissingExtraError(NkiError, ImportError):
    """An optional package is needed and not installed."""

    code = "missing-extra"


class NoBackwardError(NkiError, NotImplementedError):
    """A gradient is asked of an operator that has none."""

    code = "no-backward"


class NkiValidationError(NkiError):
    """A limit or a rule of the hardware is violated."""

    code = "validation"


class DynamicBoundsError(NkiValidationError, BoundsError):
    """An index computed on the device leaves its tensor; found while running."""

    code = "dynamic-out-of-bounds"


class MultiRankError(NkiError, NotImplementedError):
    """A collective names ranks that the run does not have."""

    code = "multi-rank"


class DeadlockError(NkiValidationError, RuntimeError):
    """Cores wait for each other for ever."""

    code = "deadlock"


class PartitionLimitError(NkiValidationError, AssertionError):
    """More partitions than the hardware has."""

    code = "partitions"


class LimitError(NkiValidationError, ValueError):
    """A dimension of an operand is larger than the generation allows."""

    code = "limit"


class OperandShapeError(NkiValidationError, ShapeError):
    """The operands of an instruction do not fit together."""

    code = "operand-shape"


class OperandDtypeError(NkiValidationError, DtypeError):
    """An operand has a data type that the instruction does not take."""

    code = "operand-dtype"


class MemoryError_(NkiValidationError, ValueError):
    """An operand lives in a memory that the instruction or engine cannot reach."""

    code = "memory"


class EngineError(NkiValidationError, ValueError):
    """An engine that cannot run the instruction with these operands."""

    code = "engine"


class RuleError(NkiValidationError, ValueError):
    """A rule of one instruction that has no class of its own."""

    code = "rule"


class CapacityError(NkiValidationError, MemoryError):
    """SBUF or PSUM does not hold all tiles that are live at one point of the program."""

    code = "capacity"


class FragmentationError(CapacityError):
    """The free bytes would suffice, but no gap between the live tiles is large enough."""

    code = "fragmentation"


class UninitializedReadError(NkiValidationError, ValueError):
    """Elements are read that no instruction has written."""

    code = "uninitialized-read"


class AliasingError(NkiValidationError, ValueError):
    """Bytes are read that another tile placed at the same address has overwritten."""

    code = "aliasing"


class UnwrittenOutputError(NkiValidationError, ValueError):
    """Elements of a returned tensor are never written."""

    code = "unwritten-output"


class ReturnError(NkiError, ValueError):
    """A kernel returned something that is not a tensor in shared HBM."""

    code = "return"


class IrSyntaxError(NkiError, ValueError):
    """A `.nkir` text that is not a program."""

    code = "ir-syntax"


class IrVersionError(IrSyntaxError):
    """A `.nkir` text written for another version of the format."""

    code = "ir-version"
