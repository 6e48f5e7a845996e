"""Legality of operands whose place the device decides: which operands take which kind of dynamic view."""

from __future__ import annotations

from nki import errors
from nki.enums import MemoryRegion
from nki.enums import engine as Engine
from nki.ir.control import Dynamic, offset_group
from nki.ir.instruction import Instruction
from nki.ir.operands import Operand
from nki.ir.program import Access
from nki.target import Target


def check_dynamic(instruction: Instruction, engine: Engine, target: Target) -> None:
    """Raise the first fault of the dynamic operands of an instruction that runs on `engine`."""
    for operand, access in instruction.accesses():
        dynamic = access.dynamic
        if dynamic is None:
            continue
        if dynamic.kind == "vector" and not operand.rows:
            raise _refused(instruction, operand, access, "with an index per row", "rows")
        if dynamic.kind == "indirect":
            _check_indirect(instruction, operand, access, engine, target)


def _check_indirect(
    instruction: Instruction, operand: Operand, access: Access, engine: Engine, target: Target
) -> None:
    """Rules 42 and 43: trn3, listed operands, and enough offsets for one group of partitions."""
    if not operand.indirect:
        raise _refused(instruction, operand, access, "made by .indirect()", "indirect")
    if not target.tensor_indirection:
        raise errors.TargetError(
            f"{instruction.mnemonic}: `{operand.name}` is made by .indirect(), which {target.name} does not have",
            operand=f"{operand.name}: {access.describe()}",
            found=target.name,
            allowed="trn3 and later",
            remedy="run with target='trn3', or gather with nisa.nc_n_gather first",
        )
    if engine is Engine.scalar and operand.is_output and access.memory is MemoryRegion.psum:
        raise errors.EngineError(
            f"{instruction.mnemonic}: the scalar engine cannot scatter to PSUM, where `{operand.name}` lives",
            operand=f"{operand.name}: {access.describe()}",
            found="psum",
            allowed="sbuf, or another engine",
            remedy="scatter into an SBUF tile, or pass engine=nisa.engine.vector where the instruction takes it",
        )
    dynamic = access.dynamic
    assert dynamic is not None
    group = min(offset_group(engine, target), access.partitions)
    columns = _columns(dynamic)
    if access.partitions % group or access.free > group * columns:
        raise errors.OperandShapeError(
            f"{instruction.mnemonic}: `{operand.name}` reads {access.free} offsets; {group} partitions share a list, "
            f"which has {group * columns} of them in {columns} columns",
            operand=f"{operand.name}: {access.describe()}",
            found=f"{access.free} offsets for {access.partitions} partitions",
            allowed=f"at most {group * columns} offsets, partitions in multiples of {group}",
            remedy=f"pass num_elem to .indirect(), at most {group * columns}",
        )


def _columns(dynamic: Dynamic) -> int:
    return dynamic.index.free if isinstance(dynamic.index, Access) else 1


def _refused(
    instruction: Instruction, operand: Operand, access: Access, what: str, flag: str
) -> errors.NkiError:
    able = [o.name for o in instruction.operands if getattr(o, flag)]
    return errors.RuleError(
        f"{instruction.mnemonic}: `{operand.name}` cannot be a view {what}",
        operand=f"{operand.name}: {access.describe()}",
        found=f"a view {what}",
        allowed=f"such views for {', '.join(able)} only" if able else "views with a regular pattern",
        remedy="move the elements into a tile first: nisa.tensor_copy(dst=tile, src=view)"
        if flag == "indirect"
        else "gather the rows into a tile first: nisa.dma_copy(dst=tile, src=view)",
    )
