"""Rules of the collectives that cut tensors into blocks: where tensors live, and along which dimension blocks lie."""

from __future__ import annotations

from typing import Any

from nki import errors
from nki.collectives.collective import CollectiveInstruction
from nki.ir.program import Access, Shape
from nki.ir.verify import Fault, rule
from nki.target import Target


class PlacedCollective(CollectiveInstruction, abstract=True):
    """A collective on lists of tensors, all in HBM or all in SBUF."""

    srcs: Any
    dsts: Any

    def wanted(self, src: Access) -> Shape | None:
        """The shape of the destination that belongs to a source; `None` if the source cannot be cut."""
        return src.shape

    @rule("several tensors at once only in HBM (semantics rule 137)")
    def several_in_hbm(self, target: Target) -> Fault | None:
        if len(self.srcs) == 1 or self.srcs[0].memory.is_hbm:
            return None
        return Fault(
            operand="srcs",
            found=f"{len(self.srcs)} tensors in sbuf",
            allowed="one tensor in sbuf, or any number in HBM",
            remedy="call it once for each tile",
            error=errors.LimitError,
        )

    @rule("in SBUF a collective takes tensors of two dimensions (semantics rule 137)")
    def flat_in_sbuf(self, target: Target) -> Fault | None:
        for operand, access in self.accesses():
            if access.memory.on_chip and len(access.shape) != 2:
                return Fault(
                    operand=f"{operand.name}: {access.describe()}",
                    found=f"shape {list(access.shape)}",
                    allowed="(partitions, elements)",
                    remedy="merge the free dimensions: tile.reshape((partitions, elements))",
                    error=errors.OperandShapeError,
                )
        return None

    @rule("the destination has room for what comes in (semantics rule 137)")
    def sizes_agree(self, target: Target) -> Fault | None:
        for src, dst in zip(self.srcs, self.dsts):
            wanted = self.wanted(src)
            size = Access(src.buffer, src.dtype, 0, wanted, wanted).size if wanted else 0
            if size != dst.size or (src.memory.on_chip and wanted != dst.shape):
                return self._shapes(src, dst, wanted)
        return None

    @rule("the shapes of source and destination go together (inferred)", severity="warning")
    def shapes_agree(self, target: Target) -> Fault | None:
        for src, dst in zip(self.srcs, self.dsts):
            wanted = self.wanted(src)
            if wanted is not None and wanted != dst.shape:
                return self._shapes(src, dst, wanted)
        return None

    def _shapes(self, src: Access, dst: Access, wanted: Shape | None) -> Fault:
        most = (
            f"{list(wanted)} for a source of {list(src.shape)}" if wanted else f"a multiple of {self.ranks}"
        )
        return Fault(
            operand=f"dsts: {dst.describe()}" if wanted else f"srcs: {src.describe()}",
            found=f"{list(dst.shape)} for a source of {list(src.shape)} and {self.ranks} ranks",
            allowed=most if wanted else f"{most} along the collective dimension",
            remedy=f"allocate the destination as {list(wanted)}" if wanted else "pad the source",
            error=errors.OperandShapeError,
        )


class BlockCollective(PlacedCollective, abstract=True):
    """A placed collective that cuts or joins along `collective_dim`.

    dims_in_sbuf: the dimensions that may be cut in SBUF; in HBM it is the first one.
    """

    dims_in_sbuf: tuple[int, ...] = (0,)

    collective_dim: Any

    @rule("blocks lie along dimension 0 (semantics rule 137)")
    def dimension_is_supported(self, target: Target) -> Fault | None:
        in_sbuf = self.srcs[0].memory.on_chip
        allowed = self.dims_in_sbuf if in_sbuf else (0,)
        if self.collective_dim in allowed:
            return None
        place = "sbuf" if in_sbuf else "HBM"
        return Fault(
            operand="collective_dim",
            found=f"{self.collective_dim} in {place}",
            allowed=f"{' or '.join(map(str, allowed))} in {place}",
            remedy="permute the tensors so that the blocks lie along dimension 0",
            error=errors.ArgumentError,
            text=f"blocks lie along dimension {' or '.join(map(str, allowed))} in {place} (semantics rule 137)",
        )

    def joined(self, src: Access) -> Shape | None:
        """The shape of as many sources as there are ranks, side by side."""
        return self._scaled(src, lambda size: size * self.ranks)

    def cut(self, src: Access) -> Shape | None:
        """The shape of one of as many blocks as there are ranks."""
        return self._scaled(src, lambda size: size // self.ranks if size % self.ranks == 0 else 0)

    def _scaled(self, src: Access, scale: Any) -> Shape | None:
        dim = self.collective_dim
        if not 0 <= dim < len(src.shape):
            return src.shape
        size = scale(src.shape[dim])
        return (*src.shape[:dim], size, *src.shape[dim + 1 :]) if size else None
