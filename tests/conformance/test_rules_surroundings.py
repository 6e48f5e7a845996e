"""Rules 160 to 175: the old namespace, errors, environment variables."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.conformance.registry import DOCUMENTED, also, not_applicable, rule
from tests.conformance.steps import counted, f32, kernel_of, refused
from tests.isa.single import bf16, same
from tests.isa.tiles import load, sbuf, store

HERE = "conformance/test_rules_surroundings.py"
OLD = "The old namespace, neuronxcc.nki, is another front door. "
X = counted(2, 4)

not_applicable(160, OLD + "Here an instruction writes into dst; dtype= and mask= are refused with what to "
               "write instead.", f"{HERE}::test_rule_160_162_keywords_of_the_old_calls")  # fmt: skip
not_applicable(161, OLD + "nl.arange and nl.mgrid are refused in favour of slices.",
               f"{HERE}::test_rule_161_163_removed_names")  # fmt: skip
not_applicable(162, OLD + "Masks do not exist here; an index outside its tensor is an error.",
               f"{HERE}::test_rule_160_162_keywords_of_the_old_calls",
               "public_cases/test_bounds.py::test_static_addresses_outside_are_refused")  # fmt: skip
not_applicable(163, OLD + "nl.par_dim is refused: dimension 0 is the partition dimension, blocks are "
               "Python lists.", f"{HERE}::test_rule_161_163_removed_names")  # fmt: skip
not_applicable(164, OLD + "`x[...] = tile` copies here too; `x = x + y` binds a new tile, as Python does.",
               f"{HERE}::test_rule_164_assignment", "language/test_transfer.py::test_assignment_copies")  # fmt: skip
not_applicable(165, OLD + "Arguments may be written without an annotation; mutable_tensor is accepted and "
               "documents.", f"{HERE}::test_rule_165_mutable_tensors",
               "nki/test_jit__tensors.py::test_mutated_arguments_come_back_as_themselves")  # fmt: skip
not_applicable(166, OLD + "A tile as a subscript chooses by vector_offset, or is refused with the way to "
               "write it.", f"{HERE}::test_rule_166_tiles_as_indices")  # fmt: skip
not_applicable(167, OLD + "NumPy functions are no operators in the documented list; they are taken for "
               "binary operators as tokens of the same name.",
               "isa/test_alu.py::test_rules_167_and_189_other_tokens")  # fmt: skip


@pytest.mark.parametrize("keyword", ["dtype", "mask"])
def test_rule_160_162_keywords_of_the_old_calls(keyword):
    error = refused(lambda t: nisa.tensor_copy(dst=t, src=t, **{keyword: None}), X)
    assert isinstance(error, TypeError) and keyword in str(error) and error.remedy


@pytest.mark.parametrize("name", ["arange", "mgrid", "par_dim", "static_cast", "loop_reduce", "gemm_grid"])
def test_rule_161_163_removed_names(name):
    with pytest.raises(NotImplementedError, match=name) as caught:
        getattr(nl, name)
    assert "use instead" in str(caught.value)


def test_rule_164_assignment():
    def body(t):
        kept = sbuf(t.shape)
        kept[...] = t
        t = nl.add(t, 1.0)
        return nl.subtract(t, kept)

    same(nki.simulate(kernel_of(body))(X), np.ones_like(X))


def test_rule_165_mutable_tensors():
    import nki.typing as nt

    @nki.jit
    def kernel(x: nt.mutable_tensor):
        nisa.dma_copy(dst=x[:, 0:3], src=load(x[:, 1:4]))
        return x

    x = X.copy()
    assert nki.simulate(kernel)(x) is x
    same(x[:, :3], X[:, 1:])


def test_rule_166_tiles_as_indices():
    @nki.jit
    def kernel(x, index):
        row = sbuf((1, 4))
        nisa.dma_copy(dst=row, src=x[load(index)])
        return store(row)

    same(nki.simulate(kernel)(X, np.array([[1]], np.int32)), X[1:2])


@rule(168, DOCUMENTED, "A tile has no truth value (ValueError); HBM tensors have no initial values.",
      "nki/test_tensor.py::test_refused_python",
      "public_cases/test_limits.py::test_a_tile_has_no_truth_value")  # fmt: skip
def test_rule_168_truth_values():
    for use in (bool, lambda t: 1 if t else 0, lambda t: t and 1, lambda t: not t):
        error = refused(use, X)
        assert isinstance(error, ValueError)


@rule(169, DOCUMENTED, "nki.isa exports NkiValidationError for limits of the hardware; too many "
      "partitions are an AssertionError as well.",
      "errors/test_each_class.py::test_hardware_limits_are_one_family")  # fmt: skip
def test_rule_169_validation_errors():
    assert nisa.NkiValidationError is errors.NkiValidationError and issubclass(
        errors.NkiValidationError, errors.NkiError
    )
    error = refused(lambda t: nisa.memset(dst=sbuf((200, 1)), value=0.0), X)
    assert isinstance(error, AssertionError) and isinstance(error, nisa.NkiValidationError)
    assert "partition dimension 200 exceeds maximum 128" in str(error)


FAULTS = {
    "activation bias type": (lambda t: nisa.activation(dst=t, op=nl.exp, data=t, bias="x"), errors.NkiError),
    "scale neither number nor column": (
        lambda t: nisa.activation(dst=t, op=nl.exp, data=t, scale=t),
        errors.NkiError,
    ),
    "ambiguous truth value": (lambda t: bool(t), ValueError),
    "too many dimensions": (lambda t: sbuf((1, 1, 1, 1, 1, 1)), errors.ShapeError),
    "no partition dimension": (lambda t: sbuf((4,)), errors.ShapeError),
    "too many partitions": (lambda t: sbuf((129, 1)), errors.PartitionLimitError),
    "partitions differ": (lambda t: nisa.tensor_copy(dst=t, src=t[0:1]), errors.OperandShapeError),
    "dimension too large": (
        lambda t: nisa.bn_stats(dst=sbuf((1, 6)), data=zeros((1, 513))),
        errors.NkiValidationError,
    ),
    "dst too small": (lambda t: nisa.dma_copy(dst=t[:, 0:2], src=t), errors.NkiValidationError),
    "out of bounds": (lambda t: t[:, 0:9], errors.BoundsError),
    "wrong memory": (lambda t: nisa.nc_matmul(dst=t, stationary=t, moving=t), errors.MemoryError_),
    "an index that is none": (lambda t: t["a"], TypeError),
    "leading dimension not a partition": (lambda t: t.permute((1, 0)), errors.ShapeError),
    "output never written": (lambda t: sbuf((1, 1)), errors.UninitializedReadError),
    "name of the old API": (lambda t: nl.mgrid, NotImplementedError),
}


def zeros(shape):
    t = sbuf(shape)
    nisa.memset(dst=t, value=0.0)
    return t


@rule(170, DOCUMENTED, "The mistakes that the old documentation names are errors here wherever they can "
      "still be made.", "isa/test_compute.py::test_outside_a_kernel",
      "frontend/test_subset.py::test_findings",
      "passes/test_initialised.py::test_an_output_that_is_not_written_at_all")  # fmt: skip
@pytest.mark.parametrize("name", FAULTS)
def test_rule_170_documented_mistakes(name):
    body, kind = FAULTS[name]
    error = refused(body, X)
    assert isinstance(error, kind) and error.span is not None


STAGING = {
    "reshape": lambda t: t.reshape((2, 5)),
    "dma_transpose rank": lambda t: nisa.dma_transpose(dst=sbuf((4, 2, 1)), src=t),
    "memset type": lambda t: nisa.memset(dst=sbuf((1, 1), nl.int32), value=0.5),
    "hwdge dtype": lambda t: nisa.dma_copy(
        dst=sbuf((2, 4), nl.bfloat16), src=t, dge_mode=nisa.dge_mode.hwdge
    ),
    "skip without indirection": lambda t: nisa.dma_copy(dst=sbuf((2, 4)), src=t, oob_mode=nisa.oob_mode.skip),
    "partitions": lambda t: sbuf((129, 4)),
    "keyword": lambda t: nisa.memset(dst=t, value=0.0, vaule=1.0),
}


@rule(171, DOCUMENTED, "Raised while staging: element counts of reshape, ranks, dtypes, frozen loop "
      "variables, mixed e4m3, keywords.",
      "public_cases/test_loops.py::test_the_variable_of_dynamic_range_is_frozen",
      "public_cases/test_matmul.py::test_pc_65_the_two_flavours_of_e4m3_do_not_meet")  # fmt: skip
@pytest.mark.parametrize("name", STAGING)
def test_rule_171_while_staging(name):
    kernel = kernel_of(STAGING[name])
    found = [d for d in kernel.check(X, target="trn2") if d.severity == "error"]
    assert len(found) == 1 and found[0].line > 0


@rule(172, DOCUMENTED, "Errors show the user's whole call chain with the right lines.",
      "public_cases/test_limits.py::test_pc_53_the_error_shows_the_lines_of_the_user",
      "errors/test_places.py::test_helper_two_calls_deep")  # fmt: skip
def test_rule_172_call_chain():
    def inner(t):
        return t[:, 9]

    error = refused(lambda t: inner(t), X)
    assert [frame.function.split(".")[-1] for frame in error.span.frames] == ["inner", "<lambda>", "kernel"]
    first_line = inner.__code__.co_firstlineno
    assert [frame.line for frame in error.span.frames[:2]] == [first_line + 1, first_line + 3]


@rule(173, DOCUMENTED, "NEURON_PLATFORM_TARGET_OVERRIDE chooses the generation (trn3 by default); "
      "NKI_PRECISE_FP=0 keeps narrow types as float32.",
      "nki/test_target.py::test_the_environment_names_the_default", "nki/test_target.py::test_aliases")  # fmt: skip
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (None, "gen4"),
        ("trn1", "gen2"),
        ("inf2", "gen2"),
        ("gen2", "gen2"),
        ("trn2", "gen3"),
        ("gen3", "gen3"),
        ("gen4", "gen4"),
    ],
)
def test_rule_173_target(monkeypatch, name, expected):
    if name:
        monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", name)
    assert nisa.get_nc_version().name == expected


@also(173)
def test_rule_173_precision(monkeypatch):
    def body(t):
        narrow, wide = sbuf(t.shape, nl.bfloat16), sbuf(t.shape)
        nisa.tensor_scalar(dst=narrow, data=t, op0=nl.add, operand0=2.0**-12)
        nisa.tensor_copy(dst=wide, src=narrow)
        return wide

    x = np.ones((1, 1), f32)
    same(nki.simulate(kernel_of(body))(x), x)
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    same(nki.simulate(kernel_of(body))(x), x + f32(2.0**-12))


@rule(174, DOCUMENTED, "NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE leaves seven PSUM banks from trn2; variables "
      "about compiled artifacts and the device's runtime have nothing to change here.",
      "language/test_environment.py::test_tile_size")  # fmt: skip
def test_rule_174_other_variables(monkeypatch):
    monkeypatch.setenv("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", "true")
    monkeypatch.setenv("NKI_ARTIFACTS_DIR", "/nowhere")
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "1")
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    assert nl.tile_size.psum_num_banks == 8
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    assert nl.tile_size.psum_num_banks == 7
    same(nki.simulate(kernel_of(lambda t: t))(X), X)


not_applicable(175, "Environment variables of other people's kernel libraries and tests are read by "
               "those, not here; that nki.simulate runs a kernel without a device, which they rely on, is "
               "what every test shows.", f"{HERE}::test_rule_175_foreign_variables")  # fmt: skip


def test_rule_175_foreign_variables(monkeypatch):
    for name in ("NKILIB_SIMULATION_RUN_ALL", "NKI_NC_VERSION", "TRNBLAS_USE_SIMULATOR"):
        monkeypatch.setenv(name, "1")
    same(nki.simulate(kernel_of(lambda t: t))(X.astype(bf16)), X.astype(bf16))
