"""Names and ways to call that public code uses: accepted, or refused with the replacement (rules 136, 140-153)."""

from __future__ import annotations

import importlib
import sys
from typing import Optional

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.nki.old_names import annotated, doubled

A = np.arange(8, dtype=np.float32).reshape(2, 4)


def test_jit_bare_called_and_with_the_keywords_of_old_code():
    for made in (
        nki.jit(doubled),
        nki.jit()(doubled),
        nki.jit(debug_kernel=True, show_compiler_tb=1)(doubled),
    ):
        assert isinstance(made, nki.Kernel) and (made(A) == 2 * A).all()
    with pytest.warns(DeprecationWarning, match="mode="):
        kernel = nki.jit(doubled, mode="torchxla")
    assert (kernel(A) == 2 * A).all() and nki.jit(kernel) is kernel
    with pytest.raises(errors.RemovedApiError, match="NEURON_PLATFORM_TARGET_OVERRIDE"):
        nki.jit(platform_target="trn2")
    with pytest.raises(errors.UnknownKeywordError, match="'targt'"):
        nki.jit(targt=1)


def test_ways_to_simulate():
    kernel = nki.jit(doubled)
    simulate_kernel = importlib.import_module("nki.simulator").simulate_kernel
    for found in (
        nki.simulate(kernel)(A),
        nki.simulate(doubled)(A),
        nki.simulate(kernel[1])(A),
        nki.simulate(kernel)[2](A),
        nki.cpu_simulate(kernel)(a=A),
        nki.cpu_simulate(kernel)[2](a=A),
        nki.simulate(kernel, target="trn1")[1](A),
        simulate_kernel(kernel, A),
        simulate_kernel(kernel[2], a=A),
    ):
        assert (found == 2 * A).all()
    assert nki.simulate(kernel).__name__ == "doubled"


def test_brackets():
    kernel = nki.jit(doubled)
    for grid in (2, (2,), nl.nc(2), nl.spmd_dim(1, nl.nc(2)), nl.spmd_dim(nl.nc(2), 1)):
        assert (kernel[grid](A) == 2 * A).all()
    with pytest.raises(errors.TargetError, match="4 cores"):
        kernel[nl.spmd_dim(nl.nc(2), 2)](A)
    with pytest.raises(errors.ArgumentError, match="launch bracket"):
        kernel[2, 2](A)


def test_a_call_without_arguments():
    with pytest.raises(errors.ArgumentError, match="missing a required argument: 'a'"):
        nki.jit(doubled)()


@pytest.mark.parametrize("name", ["baremetal", "benchmark", "simulate_kernel", "trace"])
def test_functions_that_are_gone(name):
    """Rule 153: they are there, and raise when they are called."""
    with pytest.raises(NotImplementedError, match=f"nki.{name} is not available"):
        getattr(nki, name)(doubled, warmup=1)


def test_stand_ins():
    builder = importlib.import_module("nki.compiler.kernel_builder")
    assert builder.Tensor is nl.NkiTensor and builder.isa is nisa and builder.float32 == nl.float32
    with pytest.raises(errors.RemovedApiError, match=r"nki\.simulate"):
        builder.compile_kernel(doubled, inputs={}, outputs={})
    with pytest.raises(errors.RemovedApiError):
        nki.compiler.sbuf.mod_alloc(base_addr=0)
    with pytest.raises(errors.RemovedApiError):
        nki.runtime.SpikeModel["x"]
    with pytest.raises(errors.RemovedApiError, match="scalar_offset"):
        nisa.tensor_copy_dynamic_src(None, None)
    assert not hasattr(nki, "quux") and not hasattr(nisa, "quux") and "nki.profile" in repr(nki.benchmark)
    assert not hasattr(nki.compiler, "quux") and not hasattr(nki.experimental, "quux")


def test_modules_of_old_layouts():
    for name in (
        "meta",
        "tensor",
        "builtin",
        "framework.kernel",
        "compiler._internal",
        "isa.constants",
        "language.dtypes",
    ):
        importlib.import_module(f"nki.{name}")
    assert nki.meta.tensor is nl.NkiTensor and sys.modules["nki.framework.kernel"].Kernel is nki.Kernel
    assert sys.modules["nki.isa.constants"].oob_mode is nisa.oob_mode
    assert nki.experimental.while_loop is nl.while_loop and sys.modules["nki.language.dtypes"].int8 is nl.int8


def test_types_in_annotations():
    assert isinstance(nl.bfloat16, nki.dtype) and not isinstance(3, nki.dtype) and nki.dtype.int8 is nl.int8
    assert nki.dtype("bfloat16") is nl.bfloat16
    for annotation in (Optional[nki.dtype], nki.dtype | None, None | nki.dtype, nl.ndarray | None):  # noqa: UP045
        assert "None" in str(annotation) or "Optional" in str(annotation)
    assert (nki.jit(annotated)(A, None, nl.float32) == A).all()


def test_ndarray_is_a_class():
    found = []

    def kernel():
        tile = nl.ndarray((2, 4), nl.float32)
        found.extend(
            [isinstance(tile, nl.ndarray), isinstance(tile, nl.NkiTensor), isinstance(3, nl.ndarray)]
        )

    nki.simulate(kernel)()
    assert found == [True, True, False] and issubclass(nl.NkiTensor, nl.ndarray)


def test_dtypes_are_names_and_numpy_types():
    assert nl.bfloat16 == "bfloat16" and {nl.bfloat16: 1}["bfloat16"] == 1 and str(nl.bool_) == "bool"
    assert np.zeros(3, nl.bfloat16).dtype == ml_dtypes.bfloat16 and np.dtype(nl.int8) == np.int8
    sizes = [np.dtype(t).itemsize for t in (nl.float8_e4m3fn_x4, nl.float8_e5m2_x4, nl.float4_e2m1fn_x4)]
    assert sizes == [4, 4, 2]


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda t: nl.load(t, mask=3), "nl.load.*'mask'(.|\n)*slices"),
        (lambda t: nl.add(t, t, lazy_initialization=1), "leave it out"),
        (lambda t: nl.device_print(prefix="x", tensor=t), "print_prefix"),
        (lambda t: nisa.tensor_copy(dst=t, src=t, mask=3), "slices"),
        (lambda t: nisa.dma_copy(dst=t, src=t, dst_rmw_op=nl.add), "dma_compute"),
        (lambda t: nisa.tensor_copy(src=t, dtype=nl.float32), "dst"),
        (lambda t: nl.exp(t, quux=1), "remove `quux=`"),
    ],
)
def test_keywords_of_older_releases(call, match):
    with pytest.raises(errors.UnknownKeywordError, match=match) as caught:
        nki.simulate(lambda a: call(nl.load(a)))(A)
    assert caught.value.span.file.endswith("test_spellings.py")


def test_a_type_error_of_the_users_own_stays_one():
    def exp(x):
        return x

    with pytest.raises(errors.UserError, match="unexpected keyword argument 'y'"):
        nki.simulate(lambda a: exp(a, y=1))(A)


def test_notes_of_a_launch(monkeypatch):
    """Rules 142 and 174."""
    kernel = nki.jit(lambda shape, a=None: None)
    notes = {note.code: note for note in kernel.check([1, 2])}
    assert notes["list-argument"].severity == "note" and "tuple(shape)" in notes["list-argument"].message
    assert kernel.check((1, 2)) == []
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
    assert [note.code for note in kernel.check((1, 2))] == ["logical-cores"]
    assert kernel[2].check((1, 2)) == []


def test_where_arguments_live():
    """Rule 141: in HBM of the core, in shared HBM on two cores; an argument can be returned either way."""
    found = []

    @nki.jit
    def kernel(a):
        found.append(a.buffer)
        nisa.dma_copy(dst=a[0:1], src=a[1:2])
        return a

    for run in (kernel, kernel[2]):
        own = A.copy()
        assert run(own) is own and (own == A[1]).all()
    assert found == [nl.hbm, nl.shared_hbm, nl.shared_hbm]


def test_artifacts(tmp_path, monkeypatch):
    monkeypatch.setenv("NKI_ARTIFACTS_DIR", str(tmp_path / "made"))
    nki.jit(doubled)(A)
    (path,) = (tmp_path / "made").iterdir()
    assert path.name.startswith("doubled-") and (nki.load_ir(path)(A) == 2 * A).all()


def test_the_old_package_can_be_imported():
    old = importlib.import_module("tests.nki.old_names")
    assert (nki.jit(old.doubled)(A) == 2 * A).all()
    for kernel in (old.old_kernel, old.old_benchmark, old.old_trace):
        with pytest.raises(errors.RemovedApiError, match=r"neuronxcc\.nki"):
            kernel(A)
    with pytest.raises(errors.RemovedApiError, match="slices"):
        old.old_language.arange(4)
    with pytest.raises(errors.RemovedApiError, match=r"nki\.isa\.activation"):
        old.old_isa.activation(op=None)
    with pytest.raises(errors.RemovedApiError):
        old.mod_alloc(base_addr=0)
    assert not hasattr(old.old, "quux") and old.old_isa.oob_mode is nisa.oob_mode
