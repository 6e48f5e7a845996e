"""Parsing the command line and turning errors into messages and exit codes.

Exit codes: 0 fine, 1 the kernel or its check failed, 2 the command line is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from nki.cli import commands
from nki.cli.values import UsageError
from nki.errors import NkiError
from nki.span import stop_at

_ARGUMENTS = "x.npy, x.npy:bfloat16 (cast on load), float32[128,512] (zeros), a Python literal, each after name= or not"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nki",
        description="Run, time and check NKI kernels on the CPU.",
        epilog=f"Arguments of a kernel: {_ARGUMENTS}.",
    )
    sub = parser.add_subparsers(
        dest="command", required=True, metavar="run|profile|ir|check|isa|new-kernel|doctor"
    )
    run = _kernel_command(sub, "run", "run a kernel and save its outputs")
    run.add_argument(
        "-o", "--output", action="append", default=[], metavar="OUT.npy", help="one per output, in order"
    )
    run.add_argument(
        "--eager", action="store_true", help="execute while staging (prints and breakpoints show values)"
    )
    run.add_argument(
        "--sanitize", action=argparse.BooleanOptionalAction, default=None, help="all checks on, or off"
    )
    _profile_command(sub)
    ir = _kernel_command(sub, "ir", "print the program that is run and timed")
    ir.add_argument("-o", "--output", metavar="FILE.nkir", help="write it to a file instead")
    _kernel_command(sub, "check", "report faults without running the kernel")
    isa = sub.add_parser("isa", help="list the instructions, or describe one")
    isa.add_argument("name", nargs="?", help="an instruction, e.g. nc_matmul")
    isa.add_argument("--json", action="store_true", help="machine-readable output")
    new = sub.add_parser("new-kernel", help="make the folder of a new operator, with tests that pass")
    new.add_argument("name", metavar="NAME", help="e.g. row_scale")
    new.add_argument("--family", help="the folder of nki_lib it goes to, in a checkout of the library")
    doctor = sub.add_parser("doctor", help="say what is installed and how it is configured")
    doctor.add_argument("--json", action="store_true", help="machine-readable output")
    return parser


def _profile_command(sub: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    profile = _kernel_command(sub, "profile", "predict a kernel's time and say where it goes")
    profile.add_argument("--schedule", choices=("auto", "program", "compiler"), default="auto")
    profile.add_argument(
        "--dge", choices=("auto", "static"), default="auto", help="how DMA descriptors are made"
    )
    profile.add_argument(
        "--what-if",
        action="append",
        default=[],
        type=_factor,
        metavar="RESOURCE=FACTOR",
        help="a resource that is so many times as fast, e.g. dma_bandwidth=2 or tensor=inf",
    )
    profile.add_argument("--html", metavar="FILE", help="write the report page")
    profile.add_argument("--perfetto", metavar="FILE", help="write a trace for ui.perfetto.dev")
    profile.add_argument("--parquet", metavar="FILE", help="write the events as a table")


def _factor(text: str) -> tuple[str, float]:
    name, _, factor = text.partition("=")
    return name, float(factor)


def _kernel_command(
    sub: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str
) -> argparse.ArgumentParser:
    command = sub.add_parser(name, help=text, description=text, epilog=f"Arguments: {_ARGUMENTS}.")
    command.add_argument("kernel", metavar="FILE.py:KERNEL", help="or a recorded program, FILE.nkir")
    command.add_argument("arguments", nargs="*", metavar="ARG", help="the kernel's arguments")
    command.add_argument(
        "--target", metavar="GENERATION", help="trn1, trn2 or trn3 (default: the environment, else trn3)"
    )
    command.add_argument("--json", action="store_true", help="machine-readable output")
    return command


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code."""
    options = _parsed(_parser(), argv)
    try:
        return int(getattr(commands, options.command.replace("-", "_"))(options))
    except UsageError as error:
        print(f"nki {options.command}: {error}", file=sys.stderr)
        return 2
    except NkiError as error:
        print(f"{type(error).__name__}[{error.code}]: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 0


stop_at(main.__code__)  # what a shell calls is not the user's source


def _parsed(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """The options. Arguments of the kernel may stand between options, which argparse leaves over in sub-commands."""
    options, rest = parser.parse_known_args(argv)
    unknown = [word for word in rest if word.startswith("-") and not word[1:2].isdigit()]
    if unknown or (rest and not hasattr(options, "arguments")):
        parser.error(f"unrecognized arguments: {' '.join(unknown or rest)}")
    if rest:
        options.arguments += rest
    return options
