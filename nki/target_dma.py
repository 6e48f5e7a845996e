"""Hardware table 3 of 3: DMA engines, descriptor generation, HBM and the links between cores and chips.

Part of `nki.target`; read the numbers through a `Target`. One DMA is a *trigger* on the issuing queue, a
*start* until data moves, the payload spread over the engines, and a *completion* until the semaphore shows.
"""

# ruff: noqa: RUF009 (a row is a dataclass field; its values are immutable)

from __future__ import annotations

from dataclasses import dataclass

from nki.enums import dge_mode
from nki.target_facts import (
    COLLECTIVES_API,
    DERIVED,
    DGE_GUIDE,
    DMA_GUIDE,
    DMA_OVERVIEW,
    ESTIMATE,
    GB_PER_S,
    ISA_API,
    NS,
    PUBLISHED,
    TRN1_ARCH,
    TRN2_ARCH,
    TRN3_ARCH,
    TUTORIAL,
    row,
)

_READ_ON_TRN2 = (ESTIMATE, DERIVED, ESTIMATE)
_HARDWARE_PAGES = "neuron-hardware/trn1-arch, trn2-arch, trn3-arch"
_NO_DGE = "trn1 has no hardware descriptor generator"
_TRACES = (
    f"Published trn2 profiles start plain copies from GpSimd (qGpSimdDynamic in {DMA_OVERVIEW} example 2, "
    f"every load of {TUTORIAL}), although example 1 shows static rings and {TRN2_ARCH} recommends hwdge; "
    "trn3 as trn2"
)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class DmaTiming:
    """Time on the DMA engines, in HBM and on the links."""

    # Engines
    dma_engines: int = row("DMA engines of a core", 16, PUBLISHED, DMA_GUIDE)
    dma_queues: int = row("queues (rings) of a DMA engine, served in turn", 16, PUBLISHED, DMA_OVERVIEW)
    dma_engine_partitions: int = row("SBUF partitions that one engine serves", 8, PUBLISHED, DMA_OVERVIEW)
    dma_engine_bytes_per_us: int = row(
        "planning rate of an engine", (17 * GB_PER_S, 23 * GB_PER_S, 33 * GB_PER_S), PUBLISHED, DMA_GUIDE
    )
    dma_engine_peak_bytes_per_us: int = row(
        "theoretical rate of an engine", (27_200, 27_200, 38_400), PUBLISHED, DMA_OVERVIEW
    )
    dma_engine_store_bytes_per_us: int = row(
        "rate of an engine that writes to HBM",
        (17 * GB_PER_S, 26_800, 33 * GB_PER_S),
        (ESTIMATE, DERIVED, ESTIMATE),
        f"32 KiB on one engine in figure 3 of {DMA_OVERVIEW} (trn2): loaded in 1416 ns, which is the planning rate, "
        "stored in 1222 ns; no such pair for the others: the planning rate",
    )
    dma_descriptor_ps: int = row(
        "what a descriptor costs an engine beyond its bytes",
        (7 * NS, 5 * NS, 5 * NS),
        (DERIVED, DERIVED, ESTIMATE),
        f"trn1: 4 bytes in figure 29 of nki_perf_guide.rst; trn2: 4-6 ns from the DMA packet times of {TUTORIAL}; trn3 "
        "as trn2",
    )
    dma_row_bytes_least: int = row("row size below which a DMA is inefficient", 2_048, PUBLISHED, DMA_GUIDE)
    dma_row_bytes_saturating: int = row("row size that saturates the engines", 4_096, PUBLISHED, DMA_GUIDE)

    # One transfer
    dma_start_ps: int = row(
        "wait satisfied to data moving, all in (documented planning figure)",
        1_300 * NS,
        PUBLISHED,
        f"{DMA_GUIDE}: semaphore to start across engines",
    )
    dma_completion_ps: int = row(
        "last byte to the semaphore being visible",
        300 * NS,
        _READ_ON_TRN2,
        f"299-332 ns in figure 3 of {DMA_OVERVIEW} (trn2); others assumed alike",
    )
    dma_queue_floor_ps: int = row(
        "least interval of two DMAs that one engine starts, loads and stores together",
        (340 * NS, 150 * NS, 150 * NS),
        ESTIMATE,
        "trn1: three 128-row transfers a microsecond in public runs of small copies. trn2: none is published "
        "beyond what starting them costs (dma_swdge_issue_ps, dma_hwdge_issue_ps; they make the knee at small "
        "rows); as dma_static_issue_ps. trn3 as trn2",
    )

    # Static rings (dge_mode.none)
    dma_static_issue_ps: int = row(
        "issuing a prepared DMA, on the triggering queue",
        150 * NS,
        _READ_ON_TRN2,
        f"Two instructions of 85 and 65 ns in figure 3 of {DMA_OVERVIEW} (trn2); others assumed alike",
    )
    dma_static_start_ps: int = row(
        "having been issued to data moving",
        856 * NS,
        _READ_ON_TRN2,
        f"Figure 3 of {DMA_OVERVIEW} (trn2): 1006 ns from the beginning of the trigger, dma_static_issue_ps included",
    )

    # Software descriptors (dge_mode.swdge): made by GpSimd
    dma_swdge_issue_ps: int = row(
        "GpSimd time of a DMA of up to dma_swdge_descriptors descriptors",
        (521 * NS, 608 * NS, 608 * NS),
        _READ_ON_TRN2,
        f"39.895 ms for 65536 loads in a row, v2 profile of {TUTORIAL}; the others by GpSimd's clock",
    )
    dma_swdge_descriptors: int = row(
        "descriptors that this time covers",
        128,
        DERIVED,
        f"One a row of a 128-row load in {TUTORIAL}",
    )
    dma_swdge_prepare_ps: int = row(
        "wait satisfied to the trigger leaving GpSimd, its latency (the issue time is its interval)",
        (746 * NS, 870 * NS, 870 * NS),
        _READ_ON_TRN2,
        f"Activation end to store trigger in figure 5 of {DMA_OVERVIEW} (trn2); the others by GpSimd's clock",
    )
    dma_swdge_start_ps: int = row(
        "its trigger to data moving",
        739 * NS,
        _READ_ON_TRN2,
        f"33300 to 34039 ns in figures 6 and 7 of {DMA_OVERVIEW} (617 for the store); others assumed alike",
    )

    dma_swdge_spread_ps: int = row(
        "the first DMA engine starting on it to the last",
        370 * NS,
        _READ_ON_TRN2,
        f"Figures 5 and 7 of {DMA_OVERVIEW} (trn2): 16 engines start one after the other; others assumed alike",
    )

    # Hardware descriptors (dge_mode.hwdge): asked for by the Scalar or Sync sequencer
    dma_hwdge_issue_ps: int = row(
        "time of a DMA on a hardware generator",
        600 * NS,
        (ESTIMATE, PUBLISHED, PUBLISHED),
        f"{TRN2_ARCH}, {DGE_GUIDE}; {_NO_DGE}, the entry is never used there",
    )
    dma_hwdge_start_ps: int = row(
        "the generator having finished to data moving",
        739 * NS,
        ESTIMATE,
        "No figure; as for software descriptors, which also reach the engines as written rings",
    )

    # Kinds of transfer, as a share of the copy rate
    dma_accumulate_percent: int = row(
        "rate of a read-modify-write",
        50,
        (PUBLISHED, PUBLISHED, ESTIMATE),
        f"{TRN3_ARCH}, SBUF Read-Add-Write: half before it; the full rate has no nki.isa call yet",
    )
    dma_transpose_hbm_percent: int = row(
        "rate of a transpose from HBM to SBUF",
        (10, 90, 90),
        (ESTIMATE, PUBLISHED, ESTIMATE),
        f"{TRN2_ARCH}, DMA Transpose: up to 90 %; trn1 only says much lower than copy; trn3 as trn2",
    )
    dma_transpose_sbuf_percent: int = row(
        "rate of a transpose from SBUF to SBUF",
        (10, 50, 50),
        (ESTIMATE, PUBLISHED, ESTIMATE),
        f"{TRN2_ARCH}, DMA Transpose: up to 50 %; trn1 and trn3 as for transposes from HBM",
    )
    gpsimd_dma_bytes_per_us: int = row(
        "GpSimd's own DMA, each direction",
        (0, 153 * GB_PER_S, 153 * GB_PER_S),
        (PUBLISHED, PUBLISHED, ESTIMATE),
        f"{TRN2_ARCH}, Gpsimd Engine; none on trn1; trn3 assumed as trn2",
    )
    gpsimd_dma_elements_max: int = row(
        "elements a partition of one exchange by GpSimd's own DMA",
        256,
        PUBLISHED,
        f"{ISA_API}, sendrecv: 1024, 512 or 256 bytes for 4, 2 or 1-byte types; none on trn1",
    )
    gpsimd_dma_start_ps: int = row(
        "start of GpSimd's own DMA", 500 * NS, ESTIMATE, "No figure; documented as low latency"
    )

    # Who makes the descriptors when the kernel does not say (dge_mode.unknown)
    default_dge_static: dge_mode = row(
        "plain copy between addresses known beforehand",
        (dge_mode.none, dge_mode.swdge, dge_mode.swdge),
        (PUBLISHED, DERIVED, ESTIMATE),
        f"{_NO_DGE}: host-made rings ({TRN2_ARCH}, DGE). {_TRACES}",
    )
    default_dge_dynamic: dge_mode = row(
        "address from a register or a scalar_offset",
        dge_mode.swdge,
        (PUBLISHED, DERIVED, ESTIMATE),
        f"{_NO_DGE}, a static ring cannot. {_TRACES}",
    )
    default_dge_indirect: dge_mode = row(
        "gather or scatter by a vector_offset",
        dge_mode.swdge,
        PUBLISHED,
        f"{DGE_GUIDE}: the only mode with indirect access",
    )
    default_dge_cast: dge_mode = row(
        "copy that changes the data type",
        (dge_mode.none, dge_mode.swdge, dge_mode.swdge),
        (PUBLISHED, DERIVED, ESTIMATE),
        f"{DGE_GUIDE} and the migration guide: hwdge never converts; {_NO_DGE}. {_TRACES}",
    )

    # HBM and links
    hbm_chip_bytes_per_us: int = row(
        "HBM bandwidth of a chip",
        (820 * GB_PER_S, 3_000 * GB_PER_S, 4_700 * GB_PER_S),
        PUBLISHED,
        f"{TRN1_ARCH}, {TRN2_ARCH}, {TRN3_ARCH}",
    )
    hbm_stacks: int = row("HBM stacks of a chip", (2, 4, 4), PUBLISHED, _HARDWARE_PAGES)
    hbm_core_bytes_per_us: int = row(
        "a core's share of it when all cores stream",
        (410 * GB_PER_S, 375 * GB_PER_S, 587_500),
        DERIVED,
        "hbm_chip_bytes_per_us over cores_per_chip; a core alone is bound by its 16 DMA engines instead",
    )
    link_chip_bytes_per_us: int = row(
        "NeuronLink of a chip",
        (384 * GB_PER_S, 1_280 * GB_PER_S, 2_560 * GB_PER_S),
        PUBLISHED,
        _HARDWARE_PAGES,
    )
    collective_hop_ps: int = row(
        "a ring hop inside a node", 1_500 * NS, DERIVED, "intranode-collective-comm.rst: 1-2 us a hop"
    )
    collective_channels_max: int = row(
        "channels of a ring through all devices of a node", 4, PUBLISHED, COLLECTIVES_API
    )
    collective_channels_usual: int = row("channels of any other ring", 2, PUBLISHED, COLLECTIVES_API)
    all_gather_v_ranks: int = row("ranks of a list of all_gather_v", 4, PUBLISHED, COLLECTIVES_API)
    neuron_switch: bool = row(
        "there is a NeuronSwitch fabric between chips", (False, False, True), PUBLISHED, COLLECTIVES_API
    )
    collective_node_hop_ps: int = row(
        "a hop between nodes",
        15_000 * NS,
        PUBLISHED,
        "internode-collective-comm.rst: 15 us, HBM to HBM",
    )
