"""docs/accuracy.md: how good the predicted times are, on what they were tried, and what they leave out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.accuracy.measure import CLOSE, LEAST_VARIANTS, Result, kendall_tau, summaries, traces
from benchmarks.accuracy.rows import CALIBRATION, CLASSES, EXCLUDED, Published
from benchmarks.accuracy.sensitivity import LARGEST, Sensitivity

BARS = {"probe": (0.05, 0.15), "fixed": (0.10, 0.30), "small": (0.10, 0.30), "compiler": (0.25, None)}
"""Median and worst error that a class is held to."""

TAU = 0.8
"""What Kendall's tau of an optimisation trace is held to."""

MOST_ESTIMATES = 10

TRACE_NOTES = {
    "kda-adamw": (
        "One kernel with seven chunk sizes that move the same bytes. The published times (1096 to 1367 us) go "
        "up and down with the size of a row, exact powers of two being slowest: HBM banks, which the model "
        "does not have. All predictions lie within 3 % of each other and within 13 % of the measurements."
    ),
    "kda-bmm": (
        "All variants do the same 4096 products with K = 64, half of the array. Two ran at half the clock of "
        "the Tensor engine (it was busy for 95 and 99 % of about 7 ms), as the throttling rule says; two did "
        "not, for a reason that their sources do not show. The rule makes all four equal but for their other "
        "work."
    ),
    "kda-bmm_softmax": (
        "As kda-bmm: K = 64. The first variant and the one with the diagonal trick ran with the Tensor engine "
        "at half clock, the others in part. The rest is copies without engine=, which the compiler gave to "
        "the Scalar engine in part and the model leaves on the Vector engine."
    ),
    "kda-mamba": ("The four published times lie within 9 % of each other, three of them within 2 %."),
    "kda-rope": (
        "The variants with rows of 1 KiB are the fastest as published and of middle speed as predicted: a "
        "descriptor costs 5 ns beyond its bytes in the model, while shorter rows were faster in these runs, "
        "as in kda-adamw."
    ),
    "kda-silu": (
        "Three of the four variants are published within 12 % of each other. The model has them in another "
        "order by small differences of row size, which decide about HBM banks."
    ),
}
"""Why the order of a trace does not come out."""

INTRODUCTION = """\
# How accurate the predicted times are

Nothing here was measured by this project: it has no Trainium. The rows are times that others have published, of
kernels that are public; the kernels were written anew in `benchmarks/accuracy/kernels/` and timed by the model. This
page is written by `python -m benchmarks.accuracy --write`; the rows with their sources and the evidence for their class
stand in `benchmarks/accuracy/rows.csv`.

An error of 10 % means that prediction and measurement differ by a factor of 1.1, to either side. *Calibrated* rows are
those that a constant of `nki/target_timing.py` or `nki/target_dma.py` was read from; no constant was chosen to fit a
whole kernel. All other rows are held out. *Contested* rows are shown but do not count: published sources contradict
each other there.
"""

LEFT_OUT = """\
## What the model leaves out

* The compiler. Kernels that do not fix their own order are timed as if every engine did what is ready; the compiler's
  own choices (which engine runs an instruction without `engine=`, spilling, splitting or merging instructions,
  reordering of loads into fewer DMAs) are not imitated. A kernel that exceeds SBUF is refused here and spilled there.
* HBM banks and channels: streams whose rows have a power of two as their distance lose up to 28 % in published runs.
* Power: the Tensor engine starts cold once per run and stays cold for products that use no more than half of its array;
  a pause does not make it cold again, and limits by temperature are not modelled.
* Descriptors of a few bytes: kernels that gather them on trn1 take up to twice as long as predicted.
* Instruction fetch, the depth of queues, and instructions that a compiler adds (semaphores of their own, moves).
* Other cores of the chip: HBM and links are not shared with them.
"""


def page(rows: Sequence[Published], results: Sequence[Result], moved: Sequence[Sensitivity]) -> str:
    """The whole page."""
    parts = [
        INTRODUCTION,
        "## By class\n",
        _classes(results),
        "\n## Order within optimisation traces\n",
        f"Of every published trace with at least {LEAST_VARIANTS} variants that can be re-created: Kendall's tau of "
        f"the predicted and the published order; the aim is {TAU}. Pairs that are published as less than "
        f"{CLOSE - 1:.0%} apart say little: the last but one column leaves them out.\n",
        _traces(results),
        "",
        *[
            f"* `{name}`: {note}"
            for name, note in TRACE_NOTES.items()
            if traces(results).get(name, ([], 1.0))[1] < TAU
        ],
        "\n## Row by row\n",
        *[_rows(results, kind) for kind in CLASSES if any(result.row.kind == kind for result in results)],
        "## The estimates that matter most\n",
        f"By how much the predictions move when one estimate is halved or doubled, over the rows of up to {LARGEST:,} "
        "instructions on a generation on which the number is an estimate.\n",
        _estimates(moved),
        "",
        LEFT_OUT,
        "## Rows that are not re-created\n",
        _excluded(rows),
        "",
    ]
    return "\n".join(parts)


def _table(head: Iterable[str], lines: Iterable[Iterable[object]]) -> str:
    names = list(head)
    text = [names, ["---"] * len(names), *[[_cell(value) for value in line] for line in lines]]
    return "\n".join(f"| {' | '.join(line)} |" for line in text)


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def _percent(error: float) -> str:
    return f"{error:.1%}" if error < 1 else f"{error:.0%}"


def _classes(results: Sequence[Result]) -> str:
    lines: list[tuple[object, ...]] = []
    for total in summaries(results):
        middle, worst = BARS[total.kind]
        aims = f"{middle:.0%}" + (f", {worst:.0%}" if worst else "")
        held = [
            result for result in results if result.row.kind == total.kind and result.row.use != CALIBRATION
        ]
        apart = summaries(held)
        lines.append(
            (
                CLASSES[total.kind],
                total.count,
                _percent(total.median),
                f"{_percent(total.worst.error)} (`{total.worst.row.id}`)",
                aims,
                f"{_percent(apart[0].median)} of {apart[0].count}" if apart else "-",
            )
        )
    return _table(("class", "rows", "median error", "worst", "aim: median, worst", "median, held out"), lines)


def _traces(results: Sequence[Result]) -> str:
    lines = []
    for name, (members, tau) in traces(results).items():
        order = ", ".join(
            f"`{result.row.id.removeprefix(name).lstrip('-')}`"
            for result in sorted(members, key=lambda result: result.predicted)
        )
        clear = kendall_tau([(r.predicted, r.row.value) for r in members], CLOSE)
        lines.append((f"`{name}`", len(members), f"{tau:.2f}", f"{clear:.2f}", order))
    return _table(("trace", "variants", "tau", "of clear pairs", "as predicted, fastest first"), lines)


def _rows(results: Sequence[Result], kind: str) -> str:
    lines = []
    for result in results:
        row = result.row
        if row.kind == kind:
            figure = (f"{result.predicted:,.1f}", f"{row.value:,.1f}", f"{result.ratio:.2f}")
            use = "calibrated" if row.use == CALIBRATION else ""
            use = f"{use} contested".strip() if row.contested else use
            lines.append((f"`{row.id}`", row.hardware, row.metric, *figure, use))
    head = ("row", "on", "metric", "predicted", "published", "ratio", "")
    return f"### {CLASSES[kind].capitalize()}\n\n{_table(head, lines)}\n"


def _estimates(moved: Sequence[Sensitivity]) -> str:
    lines = [
        (
            f"`{one.name}`",
            one.doc,
            one.values,
            _percent(one.mean),
            f"{_percent(one.worst)} (`{one.worst_row}`)",
            f"{one.moved} of {one.rows}",
        )
        for one in moved[:MOST_ESTIMATES]
    ]
    head = (
        "estimate",
        "what it is",
        "trn1, trn2, trn3",
        "mean move",
        "largest",
        "predictions moved by > 1 %",
    )
    return _table(head, lines)


def _excluded(rows: Sequence[Published]) -> str:
    lines = [(f"`{row.id}`", row.kernel, row.evidence) for row in rows if row.use == EXCLUDED]
    return _table(("row", "kernel", "why"), lines)
