"""Rules 131 to 139 and 192: several cores, exchanges between them, collectives."""

from __future__ import annotations

import numpy as np
import pytest

import nki
import nki.collectives as collectives
import nki.isa as nisa
import nki.language as nl
from nki import errors
from tests.conformance.registry import DOCUMENTED, also, not_applicable, rule
from tests.conformance.steps import counted, f32
from tests.isa.single import same
from tests.isa.tiles import load, sbuf, store

ONE = collectives.ReplicaGroup([[0]])
PAIR = collectives.ReplicaGroup([[0, 1]])


def on_two(kernel, *arrays, target="trn2"):
    return nki.simulate(kernel[2], target=target)(*arrays)


def refused(kernel, *arrays, cores=2, target="trn2"):
    with pytest.raises(errors.NkiError) as caught:
        nki.simulate(kernel[cores], target=target)(*arrays)
    return caught.value


def shared_output(shape):
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.shared_hbm)


@nki.jit
def halves(x):
    """Each core writes its half of the output."""
    me, out = nl.program_id(0), shared_output(x.shape)
    rows = slice(2 * me, 2 * me + 2)
    t = load(x[rows])
    nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=100.0 * (me + 1))
    nisa.dma_copy(dst=out[rows], src=t)
    return out


def exchange(body=None, **options):
    """A kernel in which each core gives a tile of its own number to the other one."""

    @nki.jit
    def kernel(x):
        me, out = nl.program_id(0), shared_output((2, *x.shape))
        t, other = load(x), sbuf(x.shape, x.dtype)
        if me:
            nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=50.0)
        given = dict(send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0, **options)
        nisa.sendrecv(**{"src": t, "dst": other, **given})
        nisa.dma_copy(dst=out[me], src=other)
        return out

    return kernel


@rule(131, DOCUMENTED, "kernel[n] runs on n cores: 1 by default, 2 from trn2; program_id is 0..n-1; "
      "without brackets program_ndim is 0.", "language/test_environment.py::test_program_ids_without_a_grid",
      "language/test_environment.py::test_program_ids_on_two_cores")  # fmt: skip
def test_rule_131_launch():
    seen = []

    @nki.jit
    def kernel(x):
        seen.append((nl.program_ndim(), nl.num_programs(), nl.program_id(0)))
        return halves(x) if nl.program_ndim() else store(load(x))

    x = counted(4, 3)
    on_two(kernel, x)
    nki.simulate(kernel, target="trn2")(x)
    assert seen == [(1, 2, 0), (1, 2, 1), (0, 1, 0)]
    assert "3" in str(refused(kernel, x, cores=3)) and "trn1" in str(refused(kernel, x, target="trn1"))


@rule(132, DOCUMENTED, "Both cores run the kernel on the same inputs; shared HBM is common, SBUF, PSUM "
      "and private HBM are per core.", "isa/test_rng.py::test_rule_121_streams_go_on")  # fmt: skip
def test_rule_132_shared_and_private():
    x = counted(4, 3)
    expected = x + np.array([[100], [100], [200], [200]], f32)
    same(on_two(halves, x), expected)
    same(on_two(halves, x), expected)


@rule(133, DOCUMENTED, "core_barrier(data, (0, 1)): both arrive, then both see what the other wrote; only "
      "the named engine waits.")  # fmt: skip
def test_rule_133_barrier():
    @nki.jit
    def kernel(x):
        me, middle, out = nl.program_id(0), shared_output((2, *x.shape)), shared_output((2, *x.shape))
        t = load(x)
        nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=float(me))
        nisa.dma_copy(dst=middle[me], src=t)
        nisa.core_barrier(middle, (0, 1))
        nisa.dma_copy(dst=out[me], src=load(middle[1 - me]))
        return out

    x = counted(2, 3)
    same(on_two(kernel, x), np.stack([x + 1, x]))
    assert "kernel[2]" in str(refused(kernel, x, cores=1))


@rule(134, DOCUMENTED, "sendrecv(src, dst, ...): both get the other's tile, of one dtype and shape, in "
      "SBUF; pipes pair in program order; any partition count; gpsimd_dma caps bytes.",
      open="sending to oneself is refused")  # fmt: skip
@pytest.mark.parametrize("rows", [1, 17, 128])
def test_rule_134_exchange(rows):
    x = counted(rows, 3)
    same(on_two(exchange(), x), np.stack([x + 50, x]))
    same(on_two(exchange(dma_engine=nisa.dma_engine.gpsimd_dma), x), np.stack([x + 50, x]))


@also(134)
def test_rule_134_refusals():
    x = counted(4, 300)
    assert "1024" in str(refused(exchange(dma_engine=nisa.dma_engine.gpsimd_dma), x))
    assert isinstance(refused(exchange(use_gpsimd_dma=True), x), errors.UnknownKeywordError)
    assert isinstance(refused(exchange(), x, target="trn1"), errors.TargetError)

    @nki.jit
    def to_itself(x):
        me, t = nl.program_id(0), load(x)
        nisa.sendrecv(src=t, dst=t, send_to_rank=me, recv_from_rank=me, pipe_id=0)
        return x

    assert isinstance(refused(to_itself, x), errors.ArgumentError)


@rule(135, DOCUMENTED, "Both cores should take the same way; it is not enforced, but one that waits for "
      "ever is reported with both lines.", open="the report")  # fmt: skip
def test_rule_135_control_flow_may_differ():
    @nki.jit
    def kernel(x):
        out = shared_output((2, *x.shape))
        t = load(x)
        if nl.program_id(0):
            nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[nl.program_id(0)], src=t)
        return out

    x = counted(2, 3)
    same(on_two(kernel, x), np.stack([x, 2 * x]))

    @nki.jit
    def alone(x):
        if nl.program_id(0):
            nisa.core_barrier(x, (0, 1))
        return x

    assert isinstance(refused(alone, x), errors.DeadlockError)


not_applicable(136, "Grids of the old namespace (kernel[g0, g1], nl.nc, nl.spmd_dim) belong to the old "
               "front door; here the launch bracket takes the number of cores, and other grids are "
               "refused with that text.", "conformance/test_rules_cores.py::test_rule_136_old_grids")  # fmt: skip


def test_rule_136_old_grids():
    for grid in ((2, 3), (1, 1, 2), 0):
        with pytest.raises(errors.NkiError, match="cores"):
            nki.simulate(halves[grid], target="trn2")(counted(4, 3))


def staged(call, *shapes, buffer=nl.shared_hbm):
    """Stage a kernel that calls a collective on an input and fresh outputs. Returns the program."""

    @nki.jit
    def kernel(x):
        src = load(x)
        source = nl.ndarray(x.shape, x.dtype, buffer=buffer)
        (nisa.tensor_copy if buffer is nl.sbuf else nisa.dma_copy)(dst=source, src=src)
        outputs = [nl.ndarray(shape, x.dtype, buffer=buffer) for shape in shapes]
        call(source, *outputs)
        return x

    return kernel.ir(counted(4, 8), target="trn2")


@rule(137, DOCUMENTED, "Collectives take lists of tensors, all in HBM or all in SBUF (several: HBM); "
      "groups do not overlap; add, minimum, maximum; collective_dim 0.")  # fmt: skip
def test_rule_137_collectives():
    def reduce(op=nl.add, group=ONE):
        return lambda s, d: collectives.all_reduce([s], [d], group, op)

    for buffer in (nl.shared_hbm, nl.sbuf):
        assert "all_reduce" in str(staged(reduce(), (4, 8), buffer=buffer))
    assert "all_gather" in str(staged(lambda s, d: collectives.all_gather([s], [d], ONE, 0), (4, 8)))
    with pytest.raises(errors.ArgumentError):
        collectives.ReplicaGroup([[0, 1], [1, 2]])
    for wrong, buffer in (
        (reduce(nl.multiply), nl.shared_hbm),
        (lambda s, d: collectives.all_reduce([s, s], [d, d], ONE, nl.add), nl.sbuf),
        (lambda s, d: collectives.all_gather([s], [d], ONE, 1), nl.shared_hbm),
        (lambda s, d: collectives.all_to_all([s], [d], ONE, 0), nl.sbuf),
        (lambda s, d: collectives.all_gather([s], [d], PAIR, 0), nl.shared_hbm),
    ):
        with pytest.raises(errors.NkiError) as caught:
            staged(wrong, (4, 8), buffer=buffer)
        assert not isinstance(caught.value, errors.MultiRankError)


@also(137)
def test_rule_137_one_rank_at_a_time():
    """Many ranks are another machine; what is legal for them is refused by that name, and nothing else."""
    with pytest.raises(errors.MultiRankError):
        staged(lambda s, d: collectives.all_gather([s], [d], PAIR, 0), (8, 8))


@rule(138, DOCUMENTED, "all_to_all_v and all_gather_v take uint32 metadata: send_counts, send_displs, "
      "recv_counts, optional recv_displs.")  # fmt: skip
def test_rule_138_metadata():
    @nki.jit
    def kernel(x, metadata):
        source, out = (nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm) for _ in range(2))
        nisa.dma_copy(dst=source, src=x)
        collectives.all_to_all_v([source], [out], ONE, metadata)
        return x

    metadata = np.zeros((3, 1), np.uint32)
    assert "all_to_all_v" in str(kernel.ir(counted(4, 8), metadata, target="trn2"))
    for wrong in (metadata.astype(np.int32), np.zeros((1, 1), np.uint32)):
        with pytest.raises(errors.NkiError):
            kernel.ir(counted(4, 8), wrong, target="trn2")


@rule(139, DOCUMENTED, "collective_permute_implicit sends to the ring's successor; channel ids count from "
      "0; num_channels is gone.")  # fmt: skip
def test_rule_139_implicit_permutes():
    def permute(channels, **more):
        return lambda s, d: collectives.collective_permute_implicit([[s]], [[d]], ONE, channels, **more)

    assert "collective_permute_implicit" in str(staged(permute([0]), (4, 8)))
    for wrong in (permute([1]), permute([0], num_channels=1)):
        with pytest.raises(errors.NkiError):
            staged(wrong, (4, 8))


@rule(192, DOCUMENTED, "The bracket is required for two cores in 0.6.0: without it a kernel runs on one.")
def test_rule_192_without_brackets_one_core():
    @nki.jit
    def kernel(x):
        assert nl.num_programs() == 1
        return store(load(x))

    x = counted(2, 3)
    same(nki.simulate(kernel, target="trn2")(x), x)
    same(nki.simulate(kernel[1], target="trn2")(x), x)
