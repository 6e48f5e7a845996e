"""Rules 156 to 159: limits of the convenience functions of `nki.language`."""

from __future__ import annotations

import numpy as np
import pytest

import nki.language as nl
from nki import errors
from tests.conformance.registry import DOCUMENTED, rule
from tests.conformance.steps import counted, f32, kernel_of
from tests.isa.single import same
from tests.language.run import run as run_nl

X = counted(2, 3)


@rule(156, DOCUMENTED, "Binary functions take equal shapes and numbers; broadcasting, not yet in the "
      "reference, works.", "language/test_binary.py::test_broadcasting_of_free_dimensions",
      "language/test_binary.py::test_refusals", open="what broadcasts: free dimensions of size 1")  # fmt: skip
def test_rule_156_broadcasting():
    same(run_nl(nl.add, X, X[:, :1]), X + X[:, :1])
    with pytest.raises(errors.NkiError):
        run_nl(nl.add, X, X[:, :2])


@rule(157, DOCUMENTED, "mod, fmod and divide work in simulation; nl.store refuses PSUM, rsqrt does too.",
      "language/test_rounding.py::test_remainder_of_tiles", "language/test_binary.py::test_divide",
      "language/test_unary.py::test_rsqrt_runs_on_gpsimd", "language/test_transfer.py::test_refusals")  # fmt: skip
def test_rule_157_limits_of_functions():
    x, y = np.array([[7, -7]], f32), np.array([[3, 3]], f32)
    same(run_nl(nl.mod, x, y), np.mod(x, y))
    same(run_nl(nl.fmod, x, y), np.fmod(x, y))
    with pytest.raises(errors.NkiError, match=r"psum|PSUM"):
        run_nl(nl.rsqrt, x, buffer=nl.psum)


@rule(158, DOCUMENTED, "nl.logical_and is the truth of both.")
def test_rule_158_logical_and():
    x, y = np.array([[0, 0, 1, 1]], f32), np.array([[0, 1, 0, 1]], f32)
    same(run_nl(nl.logical_and, x, y), np.array([[0, 0, 0, 1]], f32))


@rule(159, DOCUMENTED, "nl.load allocates, nl.store writes whole views; transpose and matmul return PSUM "
      "tiles.", "language/test_transfer.py::test_load_and_store",
      "language/test_linear.py::test_results_live_in_psum")  # fmt: skip
def test_rule_159_whole_views():
    seen = []

    def body(t):
        seen.extend([nl.transpose(t).buffer, nl.matmul(t, t, transpose_x=True).buffer])
        return t

    same(kernel_of(body)(X), X)
    assert seen == [nl.psum, nl.psum]
