"""The shape of the repository, as tests: who may import whom, what a file may be called, how long it may be.

The ceilings are data at the top. Split a file rather than raise one; if you must, name it in the exceptions,
with the reason. Contracts between packages are in pyproject.toml, `[tool.importlinter]`.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.source_tree import (
    INSTRUCTION_ROOMS,
    ROOT,
    Function,
    check,
    code_lines,
    files,
    functions,
    imported,
    instruction_classes,
    mnemonics,
    module_exists,
    shown,
    text_of,
    tree,
    words,
)

PACKAGES = ("nki", "interpreter", "nki_lib")
ROOMS = (*PACKAGES, "neuronxcc", "tests", "benchmarks", "tools")

FILE_LINES = 300
FUNCTION_LINES = 40  # without the docstring
KERNEL_LINES = 80  # a function of nki_lib that runs on the device

LONGER_FILES: dict[str, tuple[int, str]] = {  # "path": (ceiling, why it is not split)
    "nki/errors.py": (
        400,
        "a catalogue: every mistake is one short class, and all are looked up in one place",
    ),
}
LONGER_FUNCTIONS: dict[str, tuple[int, str]] = {}  # "path:qualified.name": (ceiling, why it is not split)

NO_MNEMONICS = ("nki/ir", "nki/frontend", "nki/passes", "interpreter")
MACHINE_MAY_IMPORT = ("nki.ir", "nki.target", "nki.dtypes", "nki.enums", "nki.errors", "nki.span")
FORBIDDEN_FILE_NAMES = {"utils.py", "util.py", "helpers.py", "helper.py", "common.py", "misc.py"}
HARDWARE_NUMBERS = (128, 512)
HARDWARE_NUMBERS_ALLOWED: dict[str, str] = {}  # "path": why it is not a number of the hardware


# --- imports ------------------------------------------------------------------------------------------------


def test_machine_imports_programs_only() -> None:
    may = re.compile("|".join(rf"{re.escape(name)}\w*(\.|$)" for name in MACHINE_MAY_IMPORT))
    check(
        (
            f"{shown(path)}:{line}: imports {name}"
            for path in files("interpreter")
            for line, name in imported(tree(path))
            if name.split(".")[0] in ("nki", "nki_lib", "torch") and not may.match(name)
        ),
        f"The machine may import only {', '.join(MACHINE_MAY_IMPORT)}; let the caller hand in the rest.",
    )


@pytest.mark.slow
def test_import_contracts() -> None:
    api = pytest.importorskip("importlinter.api")
    contracts = api.read_configuration(str(ROOT / "pyproject.toml"))["contracts_options"]
    entries = [entry for c in contracts for key in ("layers", "source_modules") for entry in c.get(key, ())]
    needed = re.findall(r"[\w.]+", re.sub(r"\([^)]*\)", "", " ".join(entries)))
    absent = sorted({name for name in needed if not module_exists(name)})
    if absent:
        pytest.skip(f"not written yet: {', '.join(absent)}")
    command = "from importlinter.cli import lint_imports_command as main; main()"
    run = subprocess.run(
        [sys.executable, "-c", command, "--no-logo", "--no-cache"], cwd=ROOT, capture_output=True, text=True
    )
    check(
        [run.stdout + run.stderr] if run.returncode else [],
        "Imports point one way: move the code, not the contract.",
    )


@pytest.mark.slow
def test_importing_nki_loads_no_torch() -> None:
    command = (
        "import nki, sys; print(*sorted({'torch', 'pyarrow', 'IPython', 'interpreter'} & sys.modules.keys()))"
    )
    run = subprocess.run(
        [sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True, check=True
    )
    check(run.stdout.split(), "`import nki` loads these; import them inside the function that needs them.")


# --- instructions -------------------------------------------------------------------------------------------


def names_instruction(text: str, string: bool, names: set[str]) -> str | None:
    """The instruction that a word names.

    In a longer string, English words (`activation`) and advice to users (`nisa.tensor_copy`) do not count.
    """
    if text in names:
        return text
    parts = re.findall(r"(?<!nisa\.)\b\w+", text) if string else []
    return next((part for part in parts if "_" in part and part in names), None)


def test_no_mnemonic_outside_the_instruction_set() -> None:
    names = mnemonics()
    faults = []
    for path in files(*NO_MNEMONICS):
        for line, text, string in words(tree(path)):
            found = names_instruction(text, string, names)
            if found:
                faults.append(f"{shown(path)}:{line}: names the instruction {found}")
    for path in (*files(*NO_MNEMONICS, pattern="*.lark"), *files(*NO_MNEMONICS, pattern="*.j2")):
        found = names_instruction(text_of(path), True, names)
        if found:
            faults.append(f"{shown(path)}: names the instruction {found}")
    check(
        faults,
        "Make it a property of the instruction's class (cost, state, effect, compute type) and ask for that.",
    )


def exported_from(room: str) -> set[str]:
    """The names that a package imports into its front door."""
    imports = [n for n in ast.walk(tree(ROOT / room / "__init__.py")) if isinstance(n, ast.ImportFrom)]
    return {alias.asname or alias.name for node in imports for alias in node.names}


def test_one_instruction_one_file_one_test() -> None:
    exported = {room: exported_from(room) for room in INSTRUCTION_ROOMS}
    faults = []
    for path, names in instruction_classes().items():
        room = Path(path).parent.as_posix()
        if names != [Path(path).stem]:
            faults.append(
                f"{path} defines {', '.join(names)}: one instruction a file, file and class share a name"
            )
        for name in names:
            if name not in exported[room]:
                faults.append(f"{name} is not exported: add one line to {room}/__init__.py")
            test = f"tests/{Path(room).name}/test_{name}.py"
            if not (ROOT / test).exists():
                faults.append(f"{name} has no test: write {test} with two or three worked examples")
    check(
        faults,
        "An instruction is one class in nki/isa/<name>.py, one line in nki/isa/__init__.py, one test file.",
    )


def test_registry_is_the_folder() -> None:
    names = mnemonics()
    if not names:
        pytest.skip("no instruction written yet")
    import nki
    from nki.ir.instruction import REGISTRY

    rooms = tuple(room.replace("/", ".") + "." for room in INSTRUCTION_ROOMS)
    registered = {name for name, cls in REGISTRY.items() if cls.__module__.startswith(rooms)}
    faults = [f"{name} is in only one of registry and folder" for name in sorted(registered ^ names)]
    for name in sorted(names & registered):
        room = REGISTRY[name].__module__.split(".")[1]
        if not hasattr(getattr(nki, room), name):
            faults.append(f"nki.{room}.{name} does not exist")
    check(faults, "Every class is registered when its package is imported, and exported from there.")


# --- files, functions, numbers ------------------------------------------------------------------------------


def test_files_are_short() -> None:
    faults = []
    for path in files(*ROOMS):
        lines = text_of(path).count("\n")
        ceiling, _ = LONGER_FILES.get(shown(path), (FILE_LINES, ""))
        if lines > ceiling:
            faults.append(f"{shown(path)}: {lines} lines, at most {ceiling}")
    check(faults, "Split the file by idea.")


def ceiling_of(path: Path, name: str, function: Function) -> int:
    """How long a function may be."""
    exception = LONGER_FUNCTIONS.get(f"{shown(path)}:{name}")
    if exception:
        return exception[0]
    device = path.name == "kernel.py" or any("jit" in ast.unparse(d) for d in function.decorator_list)
    return KERNEL_LINES if device and path.is_relative_to(ROOT / "nki_lib") else FUNCTION_LINES


def test_functions_are_short() -> None:
    faults = []
    for path in files(*PACKAGES, "benchmarks", "tools"):
        for name, function in functions(tree(path)):
            lines, ceiling = code_lines(function), ceiling_of(path, name, function)
            if lines > ceiling:
                faults.append(f"{shown(path)}:{function.lineno}: {name} has {lines} lines, at most {ceiling}")
    check(faults, "Give a part of it a name.")


def test_exceptions_are_still_needed() -> None:
    lengths = {shown(path): text_of(path).count("\n") for path in files(*ROOMS)}
    for path in files(*PACKAGES, "benchmarks", "tools"):
        lengths |= {f"{shown(path)}:{name}": code_lines(f) for name, f in functions(tree(path))}
    stale = [name for name in LONGER_FILES if lengths.get(name, 0) <= FILE_LINES]
    stale += [name for name in LONGER_FUNCTIONS if lengths.get(name, 0) <= FUNCTION_LINES]
    check(stale, "These fit under the ceiling now, or are gone: remove the exception.")


def test_names_say_something() -> None:
    faults = [shown(path) for path in files(*ROOMS) if path.name in FORBIDDEN_FILE_NAMES]
    check(faults, "Name the file after the one idea in it.")


def test_every_module_says_what_it_is() -> None:
    faults = [shown(p) for p in files(*ROOMS) if text_of(p).strip() and ast.get_docstring(tree(p)) is None]
    faults += [shown(p) for p in files(*PACKAGES, pattern="__init__.py") if not text_of(p).strip()]
    check(faults, "Begin the module with a docstring: what it is, what it is not, what to read next.")


def test_hardware_numbers_live_in_target() -> None:
    faults = []
    for path in files("nki", "interpreter"):
        inside_target = shown(path).startswith("nki/target")
        if inside_target or shown(path) in HARDWARE_NUMBERS_ALLOWED:
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Constant) and type(node.value) is int and node.value in HARDWARE_NUMBERS:
                faults.append(f"{shown(path)}:{node.lineno}: a bare {node.value}")
    check(
        faults,
        "Take it from the Target (`target.pmax`, ...), where its source is stated.",
    )


# --- tests --------------------------------------------------------------------------------------------------


def other_tests() -> list[str]:
    """The texts of all test modules but this one."""
    return [text_of(path) for path in files("tests") if path != Path(__file__).resolve()]


def test_every_error_is_tested() -> None:
    path = ROOT / "nki/errors.py"
    classes = [c for c in tree(path).body if isinstance(c, ast.ClassDef)] if path.exists() else []
    errors: set[str] = set()
    for c in classes:  # bases come before the classes derived from them
        if errors.union({"Exception", "Warning"}).intersection(ast.unparse(base) for base in c.bases):
            errors.add(c.name)
    named = set(re.findall(r"\w+", "\n".join(other_tests())))
    check(
        sorted(errors - named),
        "No test names these errors: provoke each in tests/errors/, with its golden text.",
    )


def test_every_tutorial_is_executed() -> None:
    texts = other_tests()
    everything = any("tutorials" in text and "*.ipynb" in text for text in texts)
    notebooks = [
        path for path in files("tutorials", pattern="*.ipynb") if ".ipynb_checkpoints" not in path.parts
    ]
    faults = [shown(p) for p in notebooks if not everything and not any(p.stem in text for text in texts)]
    check(faults, "Tutorials are tests: execute them in tests/tutorials/.")


def test_golden_files_have_a_test() -> None:
    faults = []
    golden = ROOT / "tests/golden"
    for path in (p for p in files("tests/golden", pattern="*") if p.is_file()):
        module = path.parent.relative_to(golden)
        test = ROOT / "tests" / module.parent / f"test_{module.name}.py"
        if not test.exists() or f"def test_{path.name.split('.')[0]}(" not in text_of(test):
            faults.append(f"{shown(path)}: no such test in {shown(test)}")
    check(faults, "Delete the files of tests that are gone.")
