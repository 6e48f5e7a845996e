"""Every name of release 0.6 resolves, with the documented signature: names, order and defaults of its parameters.

The table `data/api_surface.json` holds the names: `release` for the documented API, `used` for what public code uses
besides, `old` for older releases. All differences are reported together.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import warnings
from enum import Enum, EnumMeta
from pathlib import Path
from typing import Any

import pytest

import nki.collectives as ncc
import nki.isa as nisa
import nki.language as nl
from nki.errors import RemovedApiError
from nki.isa.alu import AluOp

TABLE = json.loads((Path(__file__).parent / "data" / "api_surface.json").read_text(encoding="utf-8"))
RELEASE = [row for row in TABLE if row["status"] == "release"]
NOT_OURS = ("nki_cpu_simulator", "neuron_dtypes")  # test helpers of other projects
ANY = object()  # a default that the documentation leaves open


def resolve(row: dict[str, str]) -> Any:
    """The object of a row."""
    found = importlib.import_module(row["module"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for part in row["name"].split("."):
            found = getattr(found, part)
    return found


def documented(signature: str) -> list[tuple[str, Any]]:
    """Names and defaults of the parameters in a documented signature; `inspect.Parameter.empty` without default."""
    node = ast.parse(f"def {signature}: ...").body[0]
    assert isinstance(node, ast.FunctionDef)
    arguments = [argument.arg for argument in node.args.args]
    defaults: list[Any] = [inspect.Parameter.empty] * (len(arguments) - len(node.args.defaults))
    defaults += [value_of(default) for default in node.args.defaults]
    stars = [f"*{node.args.vararg.arg}"] if node.args.vararg else []
    stars += [f"**{node.args.kwarg.arg}"] if node.args.kwarg else []
    return [*zip(arguments, defaults), *((star, inspect.Parameter.empty) for star in stars)]


def value_of(default: ast.expr) -> Any:
    """The value of a default as it is written in the documentation."""
    text = ast.unparse(default)
    if text == "...":
        return ANY
    known = {name: getattr(nisa, name) for name in dir(nisa) if isinstance(getattr(nisa, name), EnumMeta)}
    known |= {name: getattr(nl, name) for name in nl.__all__}
    return eval(text, {"__builtins__": {}}, known)


def ours(function: Any, several: bool) -> list[tuple[str, Any]]:
    """The same of a function of ours; keyword-only extras with a default are allowed, and `*args` unless `several`."""
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return [
        (stars.get(parameter.kind, "") + name, parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
        if (several or parameter.kind is not inspect.Parameter.VAR_POSITIONAL)
        and (
            parameter.kind is not inspect.Parameter.KEYWORD_ONLY
            or parameter.default is inspect.Parameter.empty
        )
    ]


def plain(value: Any) -> Any:
    """Operators by name, as functions and the words that the IR holds mean the same."""
    return (
        value.name
        if isinstance(value, AluOp)
        else getattr(value, "nki_token", getattr(value, "__name__", value))
    )


def differences(row: dict[str, str]) -> list[str]:
    """What is wrong with one name."""
    try:
        found = resolve(row)
    except (ImportError, AttributeError) as error:
        return [f"does not resolve: {error}"]
    kind = row["kind"]
    if kind == "enum member":
        wanted = ast.literal_eval(row["signature"].split(" = ")[1])
        return [] if isinstance(found, Enum) and found.value == wanted else [f"is {found!r}, not {wanted!r}"]
    if kind in ("class", "enum"):
        return [] if isinstance(found, type) else ["is no class"]
    if kind == "dtype":
        name = row["name"].rstrip("_")
        return (
            []
            if isinstance(found, str) and found == name and hash(found) == hash(name)
            else [f"is {found!r}"]
        )
    return compare(row["signature"], found) if kind in ("function", "method") else []


def compare(signature: str, function: Any) -> list[str]:
    """The differences between a documented signature and a function's."""
    want = documented(signature)
    have = ours(function, any(name[0] == "*" != name[1] for name, _ in want))
    if [name for name, _ in want] != [name for name, _ in have]:
        return [f"takes ({', '.join(n for n, _ in have)}), documented are ({', '.join(n for n, _ in want)})"]
    return [
        f"`{name}` defaults to {default!r}, documented is {wanted!r}"
        for (name, wanted), (_, default) in zip(want, have)
        if wanted is not ANY and plain(wanted) != plain(default)
    ]


def test_the_release() -> None:
    faults = [f"{row['module']}.{row['name']} {fault}" for row in RELEASE for fault in differences(row)]
    if faults:
        pytest.fail("\n".join(faults), pytrace=False)


def test_the_table_has_the_whole_release() -> None:
    """Of our names, an instruction may be newer than the table; its documentation then says where it comes from."""
    assert len(RELEASE) > 290
    listed = {row["name"] for row in RELEASE if row["module"] == "nki.isa"}
    newer = {name: getattr(nisa, name) for name in nisa.__all__ if name.islower() and name not in listed}
    sourced = {
        name for name, call in newer.items() if hasattr(call, "instruction") and "Sources:" in call.__doc__
    }
    assert newer.keys() == sourced
    assert {row["name"] for row in RELEASE if row["module"] == "nki.collectives"} <= {*dir(ncc)}


def test_what_public_code_uses() -> None:
    """It resolves, unless it belongs to another project; what is not in the release says so when it is used."""
    unknown = []
    for row in TABLE:
        if row["status"] != "used" or row["module"] in NOT_OURS:
            continue
        if row["name"] in ("module", "attribute", "isa.*"):
            row = {
                **row,
                "name": {"module": "__name__", "attribute": "float8_e4m3", "isa.*": "isa"}[row["name"]],
            }
        try:
            resolve(row)
        except RemovedApiError:
            assert row["name"] in ("cast", "par_dim")
        except (ImportError, AttributeError) as error:
            unknown.append(f"{row['module']}.{row['name']}: {error}")
    assert not unknown
