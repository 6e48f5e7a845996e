"""What an instruction is: one class holding its parameters, rules, semantics, cost and documentation.

A subclass declares its parameters in documented order (`destination`, `source`, `attribute`, `engine_choice`), its
limits and rules, `semantics` and `cost`. From that follow, with no further code: the public function with its
signature, argument conversion and errors, the verifier, printer and parser, dispatch, timing, the documentation page
and a Hypothesis strategy. `nki/isa/tensor_copy.py` is the shortest real one.

`semantics(self, a)` runs once, when the plan is made. `a` holds one array per operand (in the precision `compute`
names; numbers stay numbers; absent operands are `None`), `a.scratch(shape, dtype)` and `a.state(name)`. It yields
`(function, arguments)` pairs which the machine calls in order at every execution. It is arithmetic only: reading,
widening, rounding and storing are the machine's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from nki.enums import engine as Engine
from nki.enums import nc_version
from nki.ir.control import Loop, Register
from nki.ir.cost import Phase
from nki.ir.operands import REQUIRED, Attribute, Operand, RegisterOperand
from nki.ir.program import Access, Shape
from nki.span import UNKNOWN, Span

if TYPE_CHECKING:
    from nki.ir.builder import Builder
    from nki.target import Target

REGISTRY: dict[str, type[Instruction]] = {}
"""Every instruction class by its mnemonic."""

Steps = Iterator[tuple[Callable[..., Any], tuple[Any, ...]]]


class EngineChoice:
    """The documented `engine=` parameter: engines in order of preference, the default lets the first legal one win."""

    def __init__(self, engines: tuple[Engine, ...], default: Engine) -> None:
        self.engines = engines
        self.name = "engine"
        self.default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name


def engine_choice(*engines: Engine, default: Engine = Engine.unknown) -> Any:
    """Declare the `engine=` parameter."""
    return EngineChoice(engines, default)


Parameter = Operand | RegisterOperand | Attribute | EngineChoice


_DECLARATIONS = (Operand, RegisterOperand, Attribute, EngineChoice)


class Instruction:
    """Base of all instructions. Instances are nodes of a program; their parameters are plain attributes.

    since: first generation that has it.  engines: where it can run, in order of preference.
    limits: dimension letter -> name of the `Target` field that bounds it.
    layout: "elementwise" (all free axes alike, partition axis first), or "declared" (see `array_shapes`).
    states: names of engine registers it reads or writes (kept between instructions, see `nki/ir/effects.py`).
    namespace: the module that users call it from, as errors write it.
    creates: the register operand that calling the instruction makes and returns, if any.
    unbound: operands that only name a tensor; `semantics` gets `None` for them.
    accumulates: whether its writes form accumulation groups (see `nki/ir/groups.py`).
    effects: what it does besides writing operands, from the closed list in `nki/ir/effects.py`.
    """

    mnemonic: ClassVar[str] = ""
    parameters: ClassVar[dict[str, Parameter]] = {}
    operands: ClassVar[tuple[Operand, ...]] = ()
    lists: ClassVar[tuple[Operand, ...]] = ()
    registers: ClassVar[tuple[RegisterOperand, ...]] = ()
    attributes: ClassVar[tuple[Attribute, ...]] = ()
    constants: ClassVar[tuple[str, ...]] = ()
    signature: ClassVar[inspect.Signature]
    since: ClassVar[nc_version] = nc_version.gen2
    engines: ClassVar[tuple[Engine, ...]] = ()
    limits: ClassVar[dict[str, str]] = {"P": "pmax"}
    rules: ClassVar[tuple[Any, ...]] = ()
    layout: ClassVar[str] = "elementwise"
    states: ClassVar[tuple[str, ...]] = ()
    effects: ClassVar[tuple[str, ...]] = ()
    namespace: ClassVar[str] = "nisa"
    creates: ClassVar[str] = ""
    unbound: ClassVar[tuple[str, ...]] = ()
    accumulates: ClassVar[bool] = False
    has_engine_parameter: ClassVar[bool] = False
    abstract: ClassVar[bool] = False

    engine: Any = Engine.unknown
    name: Any = None
    loops: tuple[Loop, ...] = ()
    """The loops on the device around it, from the outermost in."""
    asked: tuple[Any, ...] = ()
    """In such a loop in eager mode: `current_key` before `resolve`."""

    def __init__(self, values: dict[str, Any], span: Span = UNKNOWN) -> None:
        self.__dict__.update(values)
        self.span = span
        self._key: tuple[Any, ...] | None = None
        self.passes: tuple[str, ...] = ()
        self.after: tuple[Instruction, ...] = ()
        self.pairs: tuple[tuple[Operand, Access], ...] = tuple(
            [
                (operand, values[operand.name])
                for operand in self.operands
                if type(values[operand.name]) is Access
            ]
        )
        for operand in self.lists:
            self.pairs += tuple(zip(operand.members(len(values[operand.name])), values[operand.name]))
        self.is_dynamic = False
        for _, access in self.pairs:
            if access.dynamic is not None:
                self.is_dynamic = True

    def __init_subclass__(cls, abstract: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        declared = {k: v for k, v in vars(cls).items() if isinstance(v, _DECLARATIONS)}
        cls.abstract = abstract
        cls.parameters = declared or cls.parameters
        cls.operands = tuple(p for p in cls.parameters.values() if isinstance(p, Operand))
        cls.lists = tuple(operand for operand in cls.operands if operand.many)
        cls.registers = tuple(p for p in cls.parameters.values() if isinstance(p, RegisterOperand))
        cls.attributes = tuple(p for p in cls.parameters.values() if isinstance(p, Attribute))
        cls.constants = tuple(
            name for name, p in cls.parameters.items() if _may_be_a_number(p) and name != "name"
        )
        choice = cls.parameters.get("engine")
        cls.has_engine_parameter = isinstance(choice, EngineChoice)
        if isinstance(choice, EngineChoice):
            cls.engines = choice.engines
        own = {name: f for name, f in vars(cls).items() if hasattr(f, "rule_text")}
        inherited = dict.fromkeys(f.__name__ for base in cls.__bases__ for f in getattr(base, "rules", ()))
        cls.rules = (*(getattr(cls, name) for name in inherited if name not in own), *own.values())
        cls.mnemonic = cls.__name__
        cls.signature = _signature(cls)
        if not abstract:
            _check_complete(cls)
            REGISTRY[cls.mnemonic] = cls

    # what a subclass says ------------------------------------------------------------------------------------

    def compute(self) -> str:
        """Precision the operands are presented in: "float32", "int32" or "raw" (the stored type, no conversion)."""
        return "float32"

    def compute_of(self, operand: Operand) -> str:
        """Precision of one operand; `compute()` unless a subclass says otherwise."""
        return self.compute()

    def extents(self, operand: Operand, access: Access) -> Shape:
        """The sizes that the operand's dimension letters stand for."""
        return (access.size,) if len(operand.dims) == 1 else (access.partitions, access.free)

    def array_shapes(self) -> dict[str, Shape]:
        """With layout "declared": the shape in which `semantics` wants each array operand."""
        return {}

    def semantics(self, a: Any) -> Steps:
        """Yield the calls that compute the outputs from the inputs (see the module's text)."""
        raise NotImplementedError

    def cost(self, target: Target) -> tuple[Phase, ...]:
        """The phases this instruction takes on its engine, from its operands and the target's figures."""
        raise NotImplementedError

    def engine_fault(self, engine: Engine, target: Target) -> str | None:
        """Why `engine`, one of `engines`, cannot run these operands; `None` if it can."""
        return None

    def resolve(self, builder: Builder) -> None:
        """Settle at staging what depends on the instructions before this one (e.g. `accumulate=None`)."""

    def meeting(self) -> Hashable | None:
        """What an instruction with the effect RENDEZVOUS shares with its counterparts on other cores: those of one key
        meet in program order."""
        return None

    def open_groups(self) -> list[Access]:
        """The windows of which it must know at run time which elements accumulating instructions have written."""
        return []

    # what follows --------------------------------------------------------------------------------------------

    def accesses(self) -> tuple[tuple[Operand, Access], ...]:
        """All tensor operands that are present, with their declarations."""
        return self.pairs

    def reads(self) -> list[Access]:
        """The windows whose old content the instruction looks at."""
        read = [access for operand, access in self.pairs if operand.direction != "out"]
        return read + self.index_windows() if self.is_dynamic else read

    def writes(self) -> list[Access]:
        """The windows it writes."""
        return [access for operand, access in self.pairs if operand.direction != "in"]

    def written_in_part(self, access: Access) -> bool:
        """Whether only the run tells which elements of a window that it writes are written."""
        return access.dynamic is not None or (self.is_dynamic and bool(self.kept_if_skipped()))

    def touched(self) -> list[Access]:
        """Every window it reads or writes, those of indices included."""
        windows = [access for _, access in self.pairs]
        return windows + self.index_windows() if self.is_dynamic else windows

    def kept_if_skipped(self) -> dict[str, str]:
        """With out-of-bounds transfers dropped: each source operand that may have a dynamic address -> the destination
        whose old content stays where a transfer is dropped. Empty if such an address is an error."""
        return {}

    def written_where(self, fetched: Any) -> Any:
        """With transfers dropped: the elements of the destination that are written, as a view of the array that says
        which elements of the source were fetched. Here for operands that are paired in row-major order."""
        return fetched

    def rows_named_once(self) -> bool:
        """Whether an index tensor that chooses the rows of a destination must not name one twice."""
        return False

    def index_windows(self) -> list[Access]:
        """The windows that hold the indices of dynamic operands; they are read too."""
        indices = [access.dynamic.index for _, access in self.pairs if access.dynamic is not None]
        return [index for index in indices if isinstance(index, Access)]

    def registers_read(self) -> list[Register]:
        """The registers it reads, as operands or as dynamic addresses."""
        indices = [access.dynamic.index for _, access in self.pairs if access.dynamic is not None]
        values = [self.__dict__.get(spec.name) for spec in self.registers if spec.direction == "in"]
        return [value for value in (*indices, *values) if isinstance(value, Register)]

    def registers_written(self) -> list[Register]:
        """The registers it writes."""
        values = [self.__dict__.get(spec.name) for spec in self.registers if spec.direction == "out"]
        return [value for value in values if isinstance(value, Register)]

    def key(self) -> tuple[Any, ...]:
        """`current_key`, remembered: for instructions that are part of a program and do not change any more."""
        if self._key is None:
            self._key = self.current_key()
        return self._key

    def remember_key(self, before: tuple[Any, ...]) -> None:
        """Make `key()` of the key before the engine was chosen, unless staging has still something to settle."""
        if type(self).resolve is Instruction.resolve and before[:1] == (self.mnemonic,):
            self._key = (self.mnemonic, self.engine._value_, *before[2:])

    def current_key(self) -> tuple[Any, ...]:
        """Hashable summary of everything legality and cost depend on (not on which buffers are meant)."""
        values = self.__dict__
        parts: list[Any] = [self.mnemonic, self.engine._value_]
        for operand, access in self.pairs:
            parts.append(operand.name)
            parts.append(access.signature)
        for name in self.constants:
            value = values[name]
            if type(value) is not Access and type(value) is not Register:
                parts.append(value)
                parts.append(type(value))
        return tuple(parts)

    def __repr__(self) -> str:
        inside = ", ".join(f"{n}={self.__dict__.get(n)!r}" for n in self.parameters)
        return f"{self.mnemonic}({inside})"


def _may_be_a_number(parameter: Parameter) -> bool:
    """Whether a parameter has a value of its own that legality may depend on, besides tensors and registers."""
    if isinstance(parameter, RegisterOperand):
        return parameter.numbers
    return isinstance(parameter, Attribute) or (isinstance(parameter, Operand) and parameter.scalar)


def _signature(cls: type[Instruction]) -> inspect.Signature:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = []
    for name, spec in cls.parameters.items():
        default = inspect.Parameter.empty if spec.default is REQUIRED else spec.default
        parameters.append(inspect.Parameter(name, kind, default=default))
    return inspect.Signature(parameters)


def _check_complete(cls: type[Instruction]) -> None:
    for method in ("semantics", "cost"):
        if getattr(cls, method) is getattr(Instruction, method):
            raise TypeError(f"instruction {cls.__name__} has no `{method}`")
    if not cls.__doc__:
        raise TypeError(f"instruction {cls.__name__} has no docstring")
    if not cls.engines:
        raise TypeError(f"instruction {cls.__name__} names no engine")
