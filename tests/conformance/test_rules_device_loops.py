"""Rules 124 to 130: registers and loops of the device."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.conformance.registry import DOCUMENTED, also, rule
from tests.conformance.steps import counted, f32, kernel_of, refused
from tests.isa.single import same
from tests.isa.tiles import load, sbuf, store

LOOPS = "language/test_loops.py"
CASES = "public_cases/test_loops.py"
DEVICE = "frontend/test_device_loops.py"


def number(n):
    return np.array([[n]], np.int32)


def register(tile):
    r = nisa.register_alloc()
    nisa.register_load(r, tile)
    return r


def counter_of(loop):
    """A kernel that counts the passes of a loop over a register, and says which counter values it saw last."""

    @nki.jit
    def kernel(n):
        count, last = sbuf((1, 1)), sbuf((1, 1), nl.int32)
        nisa.memset(dst=count, value=0.0)
        nisa.memset(dst=last, value=-1)

        def body(i):
            nisa.tensor_scalar(dst=count, data=count, op0=nl.add, operand0=1.0)
            nisa.register_store(last, i)

        loop(register(load(n)), body)
        return store(count), store(last)

    return kernel


def passes(loop, n):
    results = [nki.simulate(counter_of(loop), eager=eager)(number(n)) for eager in (False, True)]
    found = [tuple(int(x[0, 0]) for x in result) for result in results]
    assert found[0] == found[1]
    return found[0]


@rule(124, DOCUMENTED, "register_alloc, move, load, store: 32-bit values between registers, numbers and "
      "tensors of one element.", "isa/test_register_alloc.py::test_rule_124_values",
      "isa/test_register_load.py::test_rule_124_types",
      "isa/test_register_move.py::test_numbers_and_registers",
      "isa/test_register_store.py::test_integers_take_the_low_bits", open="float32 travels as bits")  # fmt: skip
def test_rule_124_registers():
    def body(t):
        r, s, out = nisa.register_alloc(7), nisa.register_alloc(), sbuf((1, 1), nl.int32)
        nisa.register_move(s, r)
        nisa.register_load(r, t[0:1, 0:1])
        nisa.register_move(r, s)
        nisa.register_store(out, r)
        return out

    assert nki.simulate(kernel_of(body))(number(-5)).tolist() == [[7]]


@rule(125, DOCUMENTED, "A register in `if`, int() or range() raises TypeError; `while register:` and "
      "dynamic_range work.", "nki/test_registers.py::test_rule_125_no_value_in_python",
      f"{CASES}::test_pc_59_a_counter_is_no_number", f"{CASES}::test_python_does_not_learn_the_counter",
      f"{DEVICE}::test_while_over_a_register")  # fmt: skip
def test_rule_125_no_python_value():
    def branch(t):
        if register(t):
            return t
        return None

    for body in (branch, lambda t: int(register(t)), lambda t: [*range(register(t))]):
        assert isinstance(refused(body, number(1)), TypeError)


@rule(126, DOCUMENTED, "dynamic_range(start, stop, step): bounds are registers or integers, the step a "
      "positive constant; the variable is frozen; deprecated.", f"{LOOPS}::test_dynamic_range_is_deprecated",
      f"{CASES}::test_the_variable_of_dynamic_range_is_frozen",
      f"{CASES}::test_steps_are_positive_integers")  # fmt: skip
def test_rule_126_dynamic_range():
    def loop(r, body):
        for i in nl.dynamic_range(1, r, 3):
            body(i)

    assert passes(loop, 9) == (3, 7) and passes(loop, 1) == (0, -1)

    def written(t):
        for i in nl.dynamic_range(3):
            nisa.register_move(i, 0)

    def stepping(t):
        for _ in nl.dynamic_range(0, 3, 0):
            pass

    for body in (written, stepping):
        assert isinstance(refused(body, number(1)), AssertionError)


@rule(127, DOCUMENTED, "fori_loop counts up by a positive constant and passes its counter by value; "
      "while_loop tests before each pass; tensors made in a body end with it.",
      f"{LOOPS}::test_fori_loop_passes_its_counter_by_value",
      f"{LOOPS}::test_while_loop_ends_when_the_data_say_so",
      "frontend/test_loop_scopes.py::test_tensors_of_a_body_end_with_it",
      f"{CASES}::test_a_condition_is_tested_before_each_pass")  # fmt: skip
def test_rule_127_fori_loop():
    assert passes(lambda r, body: nl.fori_loop(2, r, body, step=2), 9) == (4, 8)
    assert passes(lambda r, body: nl.fori_loop(5, r, body), 5) == (0, -1)

    def leaking(t):
        made = []
        nl.fori_loop(0, 2, lambda i: made.append(load_zero()))
        return made[0]

    assert isinstance(refused(leaking, number(1)), errors.NkiError)


def load_zero():
    t = sbuf((1, 1))
    nisa.memset(dst=t, value=0.0)
    return t


@rule(128, DOCUMENTED, "Device loops are refused inside no_reorder, which also covers functions called "
      "there.", "language/test_no_reorder.py::test_it_may_stand_in_a_loop_and_fixes_the_order")  # fmt: skip
def test_rule_128_no_reorder():
    def inside(t):
        with nl.no_reorder():
            hidden(t)

    def hidden(t):
        nl.fori_loop(0, 2, lambda i: None)

    assert "no_reorder" in str(refused(inside, number(1)))


@rule(129, DOCUMENTED, "Counters advance, while loops end, and loops are ordered with the code around "
      "them.", f"{CASES}::test_pc_41_a_body_goes_on_from_what_was_before_the_loop",
      f"{CASES}::test_pc_55_no_pass_at_all", f"{CASES}::test_pc_57_a_loop_inside_a_loop",
      "interpreter/test_loops.py::test_a_loop_on_the_device_is_the_loop_unrolled")  # fmt: skip
@pytest.mark.parametrize("n", [0, 1, 6])
def test_rule_129_counters_advance(n):
    assert passes(lambda r, body: nl.fori_loop(0, r, body), n) == (n, n - 1)


@rule(130, DOCUMENTED, "range, affine_range, sequential_range and static_range unroll: Python variables "
      "are updated in each pass.", "language/test_environment.py::test_ranges")  # fmt: skip
@pytest.mark.parametrize("name", ["range", "affine_range", "sequential_range", "static_range"])
def test_rule_130_unrolled(name):
    def body(t):
        total = 0.0
        for i in getattr(nl, name)(1, 6, 2):
            total = 10 * total + i
        nisa.memset(dst=t, value=total)
        return t

    assert nki.simulate(kernel_of(body))(np.zeros((1, 1), f32)).tolist() == [[135.0]]


@also(126)
def test_rule_126_the_variable_is_an_offset():
    def body(t):
        out = sbuf((1, 4))
        for i in nl.dynamic_range(1, 3):
            nisa.tensor_copy(dst=out, src=t.ap([[16, 1], [1, 4]], scalar_offset=i, indirect_dim=1))
        return out

    x = counted(1, 4, 4)
    same(nki.simulate(kernel_of(body))(x), x[:, 2])
