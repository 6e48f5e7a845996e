"""The enumerations of the NKI language: engines, memory regions and the modes of instructions.

Names and values are those of the documented API (`nki.isa`, `nki.language`, release 0.6). They live at the
bottom of the package because the IR, the instruction set and the machine all speak about them.
"""

from __future__ import annotations

from enum import Enum


class MemoryRegion(Enum):
    """Where a tensor lives. `hbm` of the documentation is `private_hbm`."""

    sbuf = "sbuf"
    psum = "psum"
    private_hbm = "private_hbm"
    shared_hbm = "shared_hbm"

    @property
    def on_chip(self) -> bool:
        """True for the memories with a partition dimension (SBUF and PSUM)."""
        return self is MemoryRegion.sbuf or self is MemoryRegion.psum

    @property
    def is_hbm(self) -> bool:
        """True for both kinds of HBM."""
        return not self.on_chip

    def __str__(self) -> str:
        return self.value


class engine(Enum):
    """The engines of a NeuronCore that an instruction can be sent to."""

    unknown = 0
    tensor = 1
    scalar = 2
    gpsimd = 3
    dma = 4
    vector = 5
    sync = 6

    def __str__(self) -> str:
        return self.name


class reduce_cmd(Enum):
    """What an instruction does with the accumulator registers of its engine."""

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3
    load_reduce = 4


class dge_mode(Enum):
    """Who makes the descriptors of a DMA."""

    unknown = 0
    swdge = 1
    hwdge = 2
    none = 3


class oob_mode(Enum):
    """What a DMA does with a dynamic address outside the tensor."""

    error = 0
    skip = 1


class matmul_perf_mode(Enum):
    """Performance modes of the Tensor engine."""

    none = "none"
    double_row = "double_row"


class nc_version(Enum):
    """NeuronCore generations: gen2 is trn1 and inf2, gen3 is trn2, gen4 is trn3."""

    gen2 = 2
    gen3 = 3
    gen4 = 4

    def __lt__(self, other: nc_version) -> bool:
        return self.value < other.value

    def __le__(self, other: nc_version) -> bool:
        return self.value <= other.value

    def __gt__(self, other: nc_version) -> bool:
        return self.value > other.value

    def __ge__(self, other: nc_version) -> bool:
        return self.value >= other.value


class dma_engine(Enum):
    """Which DMA moves the data of an exchange between cores."""

    dma = 1
    gpsimd_dma = 2
