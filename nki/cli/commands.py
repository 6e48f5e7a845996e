"""What each sub-command does. Every function takes the parsed options and returns the exit code."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import inspect
import json
import os
import platform
import sys
from dataclasses import asdict
from typing import Any

import numpy as np

import nki
from nki.cli.new_kernel import new_kernel as new_kernel  # a sub-command like those below
from nki.cli.values import UsageError, load_kernel, parse_arguments, save_array
from nki.dtypes import as_dtype
from nki.jit import Options, split
from nki.target import get_target


def _prepared(options: argparse.Namespace) -> tuple[Any, list[Any], dict[str, Any]]:
    kernel = load_kernel(options.kernel)
    args, kwargs = parse_arguments(options.arguments)
    return kernel, args, kwargs


def _emit(value: object) -> None:
    print(json.dumps(value, indent=2, default=str))


def run(options: argparse.Namespace) -> int:
    """Run the kernel; write outputs to the given files, or describe them."""
    kernel, args, kwargs = _prepared(options)
    simulated = nki.simulate(
        kernel, target=options.target, eager=True if options.eager else None, sanitize=options.sanitize
    )
    result = simulated(*args, **kwargs)
    outputs = () if result is None else result if isinstance(result, tuple) else (result,)
    if options.output and len(options.output) != len(outputs):
        raise UsageError(
            f"the kernel has {len(outputs)} outputs, {len(options.output)} files were given with -o"
        )
    for path, array in zip(options.output, outputs):
        save_array(path, array)
    described = [_describe(array) for array in outputs]
    if options.json:
        _emit(
            {
                "outputs": [
                    {**d, "file": f} for d, f in zip(described, [*options.output, *[None] * len(outputs)])
                ]
            }
        )
    else:
        for index, about in enumerate(described):
            where = f" -> {options.output[index]}" if options.output else ""
            print(f"output {index}: {about['dtype']}{about['shape']}{where}")
            if not options.output:
                print(np.array2string(np.asarray(outputs[index]), threshold=40, edgeitems=3))
    return 0


def _describe(array: Any) -> dict[str, Any]:
    return {"shape": list(array.shape), "dtype": str(as_dtype(array.dtype))}


def profile(options: argparse.Namespace) -> int:
    """Time the kernel and write the reports that were asked for."""
    kernel, args, kwargs = _prepared(options)
    how = {"target": options.target, "schedule": options.schedule, "dge": options.dge}
    report = nki.profile(kernel, what_if=dict(options.what_if), **how)(*args, **kwargs)
    written = {}
    for kind in ("html", "perfetto", "parquet"):
        path = getattr(options, kind)
        if path:
            getattr(report, f"to_{kind}")(path)
            written[kind] = path
    if options.json:
        _emit({**report.to_json(), "files": written})
        return 0
    print(report)
    for kind, path in written.items():
        print(f"{kind}: {path}")
    return 0


def ir(options: argparse.Namespace) -> int:
    """Print or save the program after all passes."""
    kernel, args, kwargs = _prepared(options)
    program = (
        kernel.ir(*args, target=options.target, **kwargs)
        if hasattr(kernel, "ir")
        else _staged(kernel, options, args, kwargs)
    )
    text = str(program)
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            file.write(text)
    if options.json:
        _emit({"kernel": program.name, "target": program.target.name, "text": text, "file": options.output})
    elif not options.output:
        print(text, end="" if text.endswith("\n") else "\n")
    return 0


def _staged(kernel: Any, options: argparse.Namespace, args: list[Any], kwargs: dict[str, Any]) -> Any:
    plain, grid = split(kernel)
    return plain.compiled(Options(target=options.target, grid=grid, eager=False), tuple(args), kwargs).program


def check(options: argparse.Namespace) -> int:
    """Report what is wrong; exit code 1 if there is an error."""
    kernel, args, kwargs = _prepared(options)
    plain = kernel if hasattr(kernel, "check") else split(kernel)[0]
    found = plain.check(*args, target=options.target, **kwargs)
    if options.json:
        _emit([asdict(diagnostic) for diagnostic in found])
    else:
        for diagnostic in found:
            print(diagnostic)
        print(f"{options.kernel}: {', '.join(_count(found, kind) for kind in ('error', 'warning', 'note'))}")
    return 1 if any(diagnostic.severity == "error" for diagnostic in found) else 0


def _count(found: list[Any], kind: str) -> str:
    number = sum(diagnostic.severity == kind for diagnostic in found)
    return f"{number} {kind}{'' if number == 1 else 's'}"


def isa(options: argparse.Namespace) -> int:
    """List the instructions or describe one."""
    from nki.ir.instruction import REGISTRY

    if options.name is None:
        rows = [
            {
                "name": name,
                "engines": [engine.name for engine in cls.engines],
                "since": {2: "trn1", 3: "trn2", 4: "trn3"}[cls.since.value],
                "summary": (cls.__doc__ or "").strip().split("\n")[0],
            }
            for name, cls in sorted(REGISTRY.items())
        ]
        if options.json:
            _emit(rows)
        else:
            for row in rows:
                print(f"{row['name']:24} {'/'.join(row['engines']):24} {row['summary']}")
        return 0
    found = REGISTRY.get(options.name)
    if found is None:
        raise UsageError(f"no instruction named {options.name!r}; `nki isa` lists them")
    about = {
        "name": found.mnemonic,
        "signature": f"{found.mnemonic}{found.signature}",
        "doc": inspect.getdoc(found),
    }
    if options.json:
        _emit(about)
    else:
        print(f"{about['signature']}\n\n{about['doc']}")
    return 0


def doctor(options: argparse.Namespace) -> int:
    """Say what is installed and how it is configured."""
    needed = {"numpy": "", "ml_dtypes": "", "lark": "", "jinja2": ""}
    extras = {"torch": "torch", "pyarrow": "profile", "IPython": "notebook", "transformers": "hf"}
    packages = {name: _version(name) for name in (*needed, *extras)}
    variables = ("NEURON_PLATFORM_TARGET_OVERRIDE", "NKI_SIMULATOR", "NKI_PRECISE_FP", "NKI_EAGER")
    facts = {
        "nki": nki.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "target": get_target(None).name,
        "packages": packages,
        "environment": {name: os.environ.get(name) for name in variables},
    }
    missing = [name for name in needed if packages[name] is None]
    if options.json:
        _emit({**facts, "missing": missing})
        return 1 if missing else 0
    print(f"open-nki {facts['nki']} on Python {facts['python']} ({facts['platform']})")
    print(f"default target: {facts['target']}")
    for name, version in packages.items():
        extra = f"not installed (pip install 'open-nki[{extras[name]}]')" if name in extras else "MISSING"
        print(f"  {name:14}{version or extra}")
    for name in variables:
        print(f"  {name}={os.environ.get(name, '(unset)')}")
    return 1 if missing else 0


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version({"IPython": "ipython"}.get(name, name))
    except importlib.metadata.PackageNotFoundError:
        module = sys.modules.get(name)
        return getattr(module, "__version__", None)
