"""Rules 140 to 155: calling kernels, and the language that kernels are written in."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from tests.conformance.registry import DOCUMENTED, INFERRED, also, not_applicable, rule
from tests.conformance.steps import counted, kernel_of, refused
from tests.isa.single import bf16, same
from tests.isa.tiles import load, sbuf, store

X = counted(2, 3)


@nki.jit
def times(x, factor=2.0):
    t = load(x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=factor)
    return store(t)


@rule(140, DOCUMENTED, "nki.jit bare or with parentheses; a call executes; mode= is ignored with a "
      "deprecation, platform_target= refused.")  # fmt: skip
def test_rule_140_jit():
    same(times(X), 2 * X)
    same(nki.jit()(times.func)(X), 2 * X)
    with pytest.warns(DeprecationWarning, match="mode"):
        same(nki.jit(mode="torch")(times.func)(X), 2 * X)
    with pytest.raises(NotImplementedError, match="NEURON_PLATFORM_TARGET_OVERRIDE"):
        nki.jit(platform_target="trn1")


@rule(141, DOCUMENTED, "NumPy arrays become HBM tensors (shared_hbm on two cores); what a kernel stores "
      "to them comes back; others pass.",
      "nki/test_jit__tensors.py::test_views_of_the_caller_are_updated_in_place")  # fmt: skip
def test_rule_141_arguments():
    seen = []

    @nki.jit
    def kernel(x, word, number):
        seen.append((x.buffer, word, number))
        t = load(x)
        nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=1.0)
        nisa.dma_copy(dst=x, src=t)
        return x

    x = X.copy()
    assert nki.simulate(kernel)(x, "a", None) is x
    same(x, X + 1)
    assert seen == [(nl.private_hbm, "a", None)]


@dataclass(frozen=True)
class Config(nl.NKIObject):
    """An object that a kernel takes."""

    factor: float
    kind: str = "plain"


@rule(142, DOCUMENTED, "Arguments: tuples, None, NKIObjects, dtypes, strings. Lists and keyword-only "
      "parameters, which the compiler refuses, run here.",
      "nki/test_arguments.py::test_tensors_inside_other_things",
      "frontend/test_subset.py::test_only_what_cannot_be_staged_is_an_error")  # fmt: skip
def test_rule_142_kinds_of_arguments():
    @nki.jit
    def kernel(tensors, config, dtype, *, none=None):
        assert none is None and config.kind == "plain"
        t = sbuf(tensors[0].shape, dtype)
        nisa.tensor_scalar(dst=t, data=load(tensors[0]), op0=nl.multiply, operand0=config.factor)
        return store(t)

    same(kernel((X,), Config(3.0), nl.bfloat16), (3 * X).astype(bf16))
    same(kernel([X], Config(3.0), np.float32), 3 * X)


@rule(143, DOCUMENTED, "Unknown keywords raise 'unexpected keyword argument'.",
      "isa/test_dma_copy.py::test_rule_143_misspelt_keyword",
      "public_cases/test_limits.py::test_pc_51_a_misspelt_keyword_gets_a_proposal")  # fmt: skip
def test_rule_143_keywords():
    error = refused(lambda t: nisa.tensor_copy(dst=t, src=t, scr=t))
    assert isinstance(error, TypeError) and "unexpected keyword argument" in str(error)
    error = refused(lambda t: nl.ndarray((1, 1), dtype=nl.float32, bufer=nl.sbuf))
    assert isinstance(error, TypeError) and "unexpected keyword argument" in str(error)


@rule(144, DOCUMENTED, "Enum parameters refuse integers, buffers refuse strings.",
      "isa/test_nc_matmul__limits.py::test_rule_144_enums_refuse_strings",
      "isa/test_tensor_scalar_reduce.py::test_command_is_no_number",
      "language/test_creation.py::test_refused")  # fmt: skip
def test_rule_144_enums():
    assert isinstance(refused(lambda t: nisa.tensor_copy(dst=t, src=t, engine=5)), TypeError)
    assert isinstance(refused(lambda t: nl.ndarray((1, 1), nl.float32, buffer="sbuf")), TypeError)


class Kind(Enum):
    """An enumeration of the user's."""

    ONE = 1
    TWO = 2


@rule(145, INFERRED, "`is`, which the compiler refuses, runs and is noted; assert, f-strings, dicts, "
      "classes and closures are Python.", "frontend/test_subset.py::test_findings",
      "frontend/test_rewrite.py::test_same_outcome")  # fmt: skip
def test_rule_145_python():
    @nki.jit
    def kernel(x, kind):
        table = {Kind.ONE: 1.0, Kind.TWO: 2.0}
        assert kind is not None, f"{kind} is missing"
        return store_scaled(x, *[value for key, value in table.items() if key is kind])

    def store_scaled(x, factor):
        return times(x, factor)

    same(kernel(X, Kind.TWO), 2 * X)
    assert any("is" in d.message and d.severity == "note" for d in kernel.check(X, Kind.ONE))


@rule(146, DOCUMENTED, "NKIObject: constructor generated, frozen dataclasses construct, equality is "
      "structural, hashable, __call__ works.", "nki/test_tensor.py::test_dataclasses",
      "nki/test_tensor.py::test_structural_equality_and_hash",
      "nki/test_tensor.py::test_generated_constructor")  # fmt: skip
def test_rule_146_objects():
    class Plain(nl.NKIObject):
        factor: float = 4.0

        def __call__(self, x):
            return times(x, self.factor)

    assert Config(1.0) == Config(1.0) != Config(2.0) and hash(Config(1.0)) == hash(Config(1.0))
    assert Plain(factor=3.0) == Plain(3.0)
    same(nki.jit(lambda x, layer: layer(x))(X, Plain()), 4 * X)


@rule(147, DOCUMENTED, "Jitted functions called inside kernels inline, tiles pass both ways, decorators "
      "around them unwrap.", "nki/test_jit__kernels.py::test_inner_kernels_inline",
      "nki/test_jit__kernels.py::test_all_sorts_of_functions")  # fmt: skip
def test_rule_147_inner_kernels():
    def wrapper(function):
        @functools.wraps(function)
        def wrapped(*args):
            return function(*args)

        return wrapped

    @wrapper
    @nki.jit
    def doubled(t):
        nisa.tensor_tensor(dst=t, data1=t, data2=t, op=nl.add)
        return t

    same(kernel_of(lambda t: doubled(doubled(t)))(X), 4 * X)


@rule(148, DOCUMENTED, "A cached program is reused for equal shapes, dtypes and constants (None and "
      "objects included); nothing leaks between traces.",
      "nki/test_jit__cache.py::test_same_call_is_staged_once",
      "nki/test_jit__cache.py::test_changed_globals_and_closures_are_seen",
      "public_cases/test_calls.py::test_pc_61_a_global_that_changes_between_two_calls",
      open="globals that change are seen, where the official text leaves it undefined")  # fmt: skip
def test_rule_148_caching(capsys):
    @nki.jit
    def kernel(x, config=None):
        print(config.factor if config else "none")
        return times(x, config.factor if config else 1.0)

    for config in (None, None, Config(2.0), Config(2.0), Config(3.0)):
        same(kernel(X, config), X * (config.factor if config else 1))
    assert capsys.readouterr().out.split() == ["none", "2.0", "3.0"]


@rule(149, DOCUMENTED, "name= is metadata; with_schedule and depends_on order and change no value.",
      "isa/test_compute.py::test_calls_return_handles")  # fmt: skip
def test_rule_149_names_and_orders():
    @nki.jit
    def kernel(x):
        t, o = load(x), sbuf(x.shape)
        first = nisa.tensor_scalar(dst=o, data=t, op0=nl.add, operand0=1.0, name="first")
        second = nisa.memset(dst=sbuf((1, 1)), value=0.0, name="second")
        assert second.depends_on(first) is second
        return store(o)

    same(kernel(X), X + 1)
    same(kernel.with_schedule([("second", "first")])(X), X + 1)
    assert "first" in str(kernel.ir(X)) and "second" in str(kernel.ir(X))


@rule(150, DOCUMENTED, "device_print(prefix, tensor) prints at once when simulated.",
      "language/test_device_print.py::test_values_are_printed",
      "public_cases/test_tools.py::test_pc_81_printing_inside_a_kernel")  # fmt: skip
def test_rule_150_device_print(capsys):
    @nki.jit
    def kernel(x):
        nl.device_print("seen", x)
        return store(load(x))

    nki.simulate(kernel)(X)
    out = capsys.readouterr().out
    assert "seen" in out and "5." in out


@rule(151, DOCUMENTED, "print() and assert run while staging.",
      "public_cases/test_limits.py::test_an_assertion_of_the_user_is_passed_on")  # fmt: skip
def test_rule_151_print_while_staging(capsys):
    @nki.jit
    def kernel(x):
        print("shape", x.shape)
        return store(load(x))

    kernel.ir(X)
    assert capsys.readouterr().out == "shape (2, 3)\n"


@rule(152, DOCUMENTED, "nki.meta.tensor replaced nki.tensor; nki.typing.tensor[...] annotates shapes.",
      "nki/test_tensor.py::test_annotations")  # fmt: skip
def test_rule_152_annotations():
    from nki.typing import tensor

    @nki.jit
    def kernel(x: tensor[2, 3]):
        return store(load(x))

    assert tensor[2, 3].shape == (2, 3)
    same(kernel(X), X)


@rule(153, DOCUMENTED, "baremetal and benchmark raise an error that names the API; a kernel called "
      "without its arguments says so.")  # fmt: skip
@pytest.mark.parametrize("name", ["baremetal", "benchmark"])
def test_rule_153_removed_entry_points(name):
    with pytest.raises(NotImplementedError, match=name):
        getattr(nki, name)(times.func)
    with pytest.raises(TypeError, match="x"):
        times()


not_applicable(154, "neuronxcc.nki inside kernels, an error of the official release since 0.4.0, is the "
               "old front door; what is there today is a shim with which files of new kernels import.",
               "conformance/test_rules_calls.py::test_rule_154_shim")  # fmt: skip


def test_rule_154_shim():
    import neuronxcc.nki.typing as nt

    assert nt.tensor[2].shape == (2,)


@rule(155, DOCUMENTED, "shared_constant accepts the path of an .npy file.")
def test_rule_155_constants_from_files(tmp_path):
    path = tmp_path / "values.npy"
    np.save(path, X)
    for given in (str(path), path):
        same(nki.simulate(nki.jit(lambda x, g=given: store(load(nl.shared_constant(g)))))(X), X)


@also(141)
def test_rule_141_shared_on_two_cores():
    seen = []

    @nki.jit
    def kernel(x):
        seen.append(x.buffer)
        return x

    nki.simulate(kernel[2], target="trn2")(X.copy())
    assert set(seen) == {nl.shared_hbm}
