"""What an instruction says about its time: phases on resources. The machine schedules them and knows no mnemonic.

A compute instruction is one or more `Phase`s, run in order on its engine. Initiation interval and latency are
apart: the engine can start the next instruction `interval` cycles after this one, while the result is visible only
`interval + latency` cycles after the start. A data transfer carries a `Transfer` instead of cycles.
"""

from __future__ import annotations

from dataclasses import dataclass

from nki.enums import dge_mode


@dataclass(frozen=True)
class Transfer:
    """The bytes a DMA moves, in closed form: `descriptors` pieces of `descriptor_bytes` each.

    `efficiency` scales the copy rate (1.0 a plain copy; 0.5 read-modify-write); `dge` says who makes the descriptors.
    """

    descriptors: int
    descriptor_bytes: int
    dge: dge_mode
    efficiency: float = 1.0

    @property
    def total_bytes(self) -> int:
        """Payload of the whole transfer in bytes."""
        return self.descriptors * self.descriptor_bytes


@dataclass(frozen=True)
class Phase:
    """One step of an instruction on its engine.

    interval: cycles of the engine's clock until it can begin something else.
    latency: further cycles until the result is visible to other engines.
    kind: a label for the profile ("load_stationary", "multiply_moving", "read_accumulator", ...).
    table: the activation-function table that must be resident, if any.
    background: the phase may overlap the phase before it on the same engine (loading weights behind a matmul).
    ports: shared resources held during the interval, by name (e.g. "sbuf_shared_port").
    transfer: the data movement of a DMA; then interval and latency are the queue's business and stay 0.
    throttled: the engine stays at the reduced rate it starts with, because this uses too little of it.
    needs: the operands it reads, if not all.
    macs: multiplications with an addition that the PE array does, whatever they are good for.
    moves: they only move data (a transpose).
    """

    interval: int
    latency: int = 0
    kind: str = "compute"
    table: str | None = None
    background: bool = False
    ports: tuple[str, ...] = ()
    transfer: Transfer | None = None
    throttled: bool = False
    needs: tuple[str, ...] = ()
    macs: int = 0
    moves: bool = False
