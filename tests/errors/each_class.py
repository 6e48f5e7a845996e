"""One way to run into each class of error, by the name of the class. Golden texts name the lines. Tests nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl

f32 = np.float32
X = np.ones((4, 8), f32)

PROVOKE: dict[str, Callable[[], Any]] = {}


def provokes(name: str) -> Callable[[Callable[..., Any]], Any]:
    """The kernel below, called with one array, raises the error of this name."""

    def register(function: Callable[..., Any]) -> Any:
        kernel = nki.jit(function)
        PROVOKE[name] = lambda: nki.simulate(kernel, target="trn2", sanitize=True)(X.copy())
        return kernel

    return register


def tile(shape: Any = (4, 8), dtype: Any = nl.float32, **where: Any) -> Any:
    made = nl.ndarray(shape, dtype=dtype, **where)
    nisa.memset(dst=made, value=0)
    return made


@provokes("UserError")
def user_error(x):
    sizes = {"rows": 4}
    return tile((sizes["columns"], 8))


@provokes("UserAssertionError")
def user_assertion(x):
    assert x.shape[1] % 16 == 0, "the number of columns must be a multiple of 16"
    return x


@provokes("ArgumentError")
def argument(x):
    nisa.memset(dst=tile())
    return x


@provokes("UnknownKeywordError")
def unknown_keyword(x):
    nisa.memset(dst=tile(), valeu=0.0)
    return x


@provokes("DtypeError")
def dtype(x):
    tile(dtype="float64")
    return x


@provokes("OperatorError")
def operator(x):
    nisa.tensor_scalar(dst=tile(), data=tile(), op0="ad", operand0=1.0)
    return x


@provokes("TargetError")
def target(x):
    nisa.tensor_scalar(dst=tile(), data=tile(), op0=nl.abs_max, operand0=1.0)
    return x


@provokes("ShapeError")
def shape(x):
    tile((4, 8)).reshape((4, 9))
    return x


@provokes("BoundsError")
def bounds(x):
    nisa.memset(dst=tile()[0:4, 8], value=1.0)
    return x


@provokes("TruthValueError")
def truth_value(x):
    if tile():
        return x
    return None


@provokes("SubsetError")
def subset(x):
    yield tile()


@provokes("RemovedApiError")
def removed(x):
    nl.arange(8)
    return x


@provokes("PartitionLimitError")
def partitions(x):
    tile((129, 8))
    return x


@provokes("LimitError")
def limit(x):
    nisa.nc_matmul(
        dst=nl.ndarray((8, 640), dtype=nl.float32, buffer=nl.psum),
        stationary=tile(),
        moving=tile((4, 640)),
    )
    return x


@provokes("OperandShapeError")
def operand_shape(x):
    nisa.tensor_copy(dst=tile(), src=tile((4, 9)))
    return x


@provokes("OperandDtypeError")
def operand_dtype(x):
    nisa.tensor_tensor(dst=tile(), data1=tile(), data2=tile(), op=nl.bitwise_and)
    return x


@provokes("MemoryError_")
def memory(x):
    nisa.dma_copy(dst=tile(buffer=nl.psum), src=x)
    return x


@provokes("EngineError")
def engine(x):
    nisa.tensor_copy(dst=tile(), src=tile(buffer=nl.psum), engine=nisa.engine.gpsimd)
    return x


@provokes("RuleError")
def rule(x):
    nisa.tensor_scalar(dst=tile(), data=tile(), op0=nl.abs, operand0=2.0)
    return x


@provokes("CapacityError")
def capacity(x):
    first = tile((128, 30000))
    nisa.tensor_copy(dst=first, src=tile((128, 30000)))
    return x


@provokes("FragmentationError")
def fragmentation(x):
    walls = [tile((4, 1024), address=(0, 48 * 1024 * i)) for i in range(1, 4)]
    tile((4, 20000))
    for wall in walls:
        nisa.tensor_copy(dst=wall, src=tile((4, 1024)))
    return x


@provokes("UninitializedReadError")
def uninitialized(x):
    fresh = nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=fresh[:, 0:6], value=0.0)
    nisa.tensor_copy(dst=tile(), src=fresh)
    return x


@provokes("AliasingError")
def aliasing(x):
    lower = tile(address=(0, 0), name="lower")
    tile(address=(0, 16), name="upper")
    nisa.tensor_copy(dst=tile(), src=lower)
    return x


@provokes("UnwrittenOutputError")
def unwritten_output(x):
    result = nl.ndarray((6, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=result[0:4], src=x)
    return result


@provokes("ReturnError")
def wrong_return(x):
    return {"x": x}


def provoke(name: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """The function below raises the error of this name."""

    def register(function: Callable[[], Any]) -> Callable[[], Any]:
        PROVOKE[name] = function
        return function

    return register


@provoke("OutsideKernelError")
def outside() -> None:
    nisa.memset(dst=None, value=0.0)


@provoke("IrSyntaxError")
def ir_syntax() -> None:
    _load("nkir 1\nkernel k(%x -> () on trn2\n")


@provoke("IrVersionError")
def ir_version() -> None:
    _load("nkir 99\nkernel k() -> () on trn2\n")


def _load(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "broken.nkir"
        path.write_text(text, encoding="utf-8")
        nki.load_ir(path)


@provoke("DtypeError of an argument")
def argument_dtype() -> None:
    removed(X.astype(np.float64))


@provoke("ShapeError of an argument")
def argument_shape() -> None:
    removed(np.ones((0, 8), f32))


@provoke("ArgumentError of a call")
def call() -> None:
    removed(X, X)


@provoke("UnknownKeywordError of a call")
def call_keyword() -> None:
    removed(xx=X)


@provoke("TargetError of a call")
def call_target() -> None:
    nki.simulate(removed, target="trn9")(X)


@provoke("ArgumentError of a grid")
def call_grid() -> None:
    removed[0](X)


@provoke("ArgumentError of a read-only array")
def read_only() -> None:
    frozen = X.astype(ml_dtypes.bfloat16)
    frozen.flags.writeable = False
    writes(frozen)


@nki.jit
def writes(x):
    nisa.dma_copy(dst=x, src=tile(dtype=x.dtype))
    return x


@provoke("UnknownKeywordError of nki.jit")
def jit_keyword() -> None:
    nki.jit(platform="trn2")


@provokes("MultiRankError")
def multi_rank(x):
    nki.collectives.all_reduce([x], [x], nki.collectives.ReplicaGroup([[0, 1]]), nl.add)
    return x


@nki.jit
def deadlock(x):
    if nl.program_id(0) == 1:
        nisa.core_barrier(x, (0, 1))
    return x


PROVOKE["DeadlockError"] = lambda: nki.simulate(deadlock[2], target="trn2")(X.copy())
