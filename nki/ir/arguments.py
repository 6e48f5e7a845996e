"""From the arguments of a call to the values of an instruction's parameters: matched as Python would, and converted."""

from __future__ import annotations

import difflib
from typing import Any

from nki import errors
from nki.enums import engine as Engine
from nki.ir.control import Register
from nki.ir.instruction import EngineChoice, Instruction, Parameter
from nki.ir.operands import REQUIRED, Operand, RegisterOperand, plain
from nki.ir.program import Access


def bind(cls: type[Instruction], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Match a call's arguments with the parameters of `cls`, as Python would, and convert them."""
    parameters = cls.parameters
    if len(args) > len(parameters):
        raise errors.ArgumentError(
            f"{cls.mnemonic}() takes {len(parameters)} arguments but {len(args)} were given",
            found=f"{len(args)} positional arguments",
            allowed=f"{cls.mnemonic}{cls.signature}",
            remedy="drop the surplus arguments",
        )
    given = dict(zip(parameters, args))
    for name, value in kwargs.items():
        if name not in parameters or name in given:
            raise _keyword_error(cls, name, name in given)
        given[name] = value
    values: dict[str, Any] = {}
    for name, spec in parameters.items():
        if name in given:
            values[name] = _convert(cls, spec, given[name])
        elif spec.default is REQUIRED:
            raise errors.ArgumentError(
                f"{cls.mnemonic}() misses its argument `{name}`",
                operand=name,
                found="nothing",
                allowed=f"{cls.mnemonic}{cls.signature}",
                remedy=f"pass {name}=...",
            )
        else:
            values[name] = spec.default
    return values


def _keyword_error(cls: type[Instruction], name: str, twice: bool) -> errors.NkiError:
    if twice:
        return errors.ArgumentError(
            f"{cls.mnemonic}() got multiple values for argument `{name}`",
            operand=name,
            allowed=f"{cls.mnemonic}{cls.signature}",
            remedy=f"pass `{name}` once",
        )
    close = difflib.get_close_matches(name, cls.parameters, n=1)
    return errors.UnknownKeywordError(
        f"{cls.mnemonic}() got an unexpected keyword argument '{name}'",
        operand=name,
        found=f"{name}=...",
        allowed=f"{cls.mnemonic}{cls.signature}",
        remedy=f"did you mean `{close[0]}`?" if close else f"remove `{name}=`",
    )


def _convert(cls: type[Instruction], spec: Parameter, value: Any) -> Any:
    if isinstance(spec, Operand):
        if spec.many:
            return _list(cls, spec, value)
        access = getattr(value, "access", None)
        if isinstance(access, Access):
            return access
        if value is None and (spec.default is None or spec.nullable):
            return None
        if spec.scalar:
            number = _as_number(value)
            if number is not None:
                return number
        wanted = "a tensor or a number" if spec.scalar else "a tensor"
        raise errors.ArgumentError(
            f"{cls.mnemonic}: `{spec.name}` must be {wanted}, got {type(value).__name__}",
            operand=spec.name,
            found=f"{value!r:.80}",
            allowed=wanted,
            remedy="allocate a tile with nl.ndarray and pass it" if not spec.scalar else f"pass {wanted}",
        )
    if isinstance(spec, EngineChoice):
        return _engine(cls, value)
    if isinstance(spec, RegisterOperand):
        return _register(cls, spec, value)
    try:
        return spec.kind.convert(value)
    except errors.NkiError as error:
        error.message = f"{cls.mnemonic}: `{spec.name}`: {error.message}"
        error.operand = spec.name
        raise


def _list(cls: type[Instruction], spec: Operand, value: Any) -> tuple[Access, ...]:
    found = value if isinstance(value, (list, tuple)) else ()
    wrong = next((item for item in found if not isinstance(getattr(item, "access", None), Access)), value)
    if found and wrong is value:
        return tuple(item.access for item in found)
    raise errors.ArgumentError(
        f"{cls.mnemonic}: `{spec.name}` must be a list of tensors, got {type(wrong).__name__}",
        operand=spec.name,
        found=f"{value!r:.80}",
        allowed="a list of at least one tensor",
        remedy=f"write {spec.name}=[first, second]",
    )


def _register(cls: type[Instruction], spec: RegisterOperand, value: Any) -> Any:
    register = getattr(value, "register", value)
    if isinstance(register, Register):
        if register.frozen and spec.direction == "out":
            raise errors.FrozenRegisterError(
                f"{cls.mnemonic}: `{spec.name}` is the counter of a loop and cannot be written",
                operand=spec.name,
                found=f"the loop counter `{register.name}`",
                allowed="a register made with nisa.register_alloc",
                remedy="copy the counter into a register of your own with nisa.register_move",
            )
        return register
    number = _as_number(value)
    if spec.numbers and isinstance(number, int):
        return number
    if value is None and spec.default is None:
        return None
    wanted = "a register or an integer" if spec.numbers else "a register"
    raise errors.ArgumentError(
        f"{cls.mnemonic}: `{spec.name}` must be {wanted}, got {type(value).__name__}",
        operand=spec.name,
        found=f"{value!r:.80}",
        allowed=wanted,
        remedy="make one with nisa.register_alloc()",
    )


def _as_number(value: Any) -> float | int | None:
    if isinstance(value, (int, float)):
        return plain(value)
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        item = value.item()
        try:
            return item if isinstance(item, (int, float)) else float(item)
        except (TypeError, ValueError):
            return None
    return None


def _engine(cls: type[Instruction], value: Any) -> Engine:
    if isinstance(value, Engine):
        return value
    allowed = ", ".join(f"nisa.engine.{e.name}" for e in (*cls.engines, Engine.unknown))
    raise errors.ArgumentError(
        f"{cls.mnemonic}: `engine` must be a member of nisa.engine, got {type(value).__name__}",
        operand="engine",
        found=repr(value),
        allowed=allowed,
        remedy=f"pass one of {allowed}",
    )
