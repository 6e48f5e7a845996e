"""Hardware table 1 of 3: sizes of the memories, limits of operands, and what each generation can do.

Part of `nki.target`; read the numbers through a `Target`. Later architecture guides list only what changed,
so a number that only the trn1 guide states counts as published for its successors unless the row says no.
"""

from __future__ import annotations

from dataclasses import dataclass

from nki.target_facts import (
    ARCH,
    DERIVED,
    DGE_GUIDE,
    ESTIMATE,
    GIB,
    ISA_API,
    KIB,
    LANGUAGE_GUIDE,
    PUBLISHED,
    TRN1_ARCH,
    TRN2_ARCH,
    TRN3_ARCH,
    row,
)

_PARTITIONS = 128
_QUADRANT = 32
_BANK_BYTES = 2 * KIB
_BANKS = 8
_FP32_BYTES = 4
_SBUF_KIB = (192, 224, 256)
_RESERVED_KIB = 16
_USABLE = tuple((size - _RESERVED_KIB) * KIB for size in _SBUF_KIB)
_USABLE_LABEL = (PUBLISHED, DERIVED, ESTIMATE)
_USABLE_SOURCE = (
    "The compiler keeps 16 KiB of each partition: direct-allocation text of the SDK 2.26 API for trn1; "
    "public trn2 kernels count on 208 KiB; trn3 assumed to keep as much"
)
_PORTS = f"{TRN1_ARCH}, concurrent SBUF/PSUM accesses; {TRN2_ARCH}, Data Movement Updates"
_MOVING = f"{ISA_API}, nc_matmul tile size: one PSUM bank before NeuronCore-v4, all eight banks from it on"


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Limits:
    """Memories, operand limits and capabilities."""

    # The chip
    cores_per_chip: int = row("physical NeuronCores of a chip", (2, 8, 8), PUBLISHED, ARCH)
    default_lnc: int = row(
        "physical cores that make one logical core by default",
        (1, 2, 2),
        (PUBLISHED, PUBLISHED, ESTIMATE),
        "collectives.rst: two on trn2; trn3 assumed the same; trn1 has no logical pairs",
    )
    hbm_chip_bytes: int = row("device memory of a chip", (32 * GIB, 96 * GIB, 144 * GIB), PUBLISHED, ARCH)

    # Partitions and tensors
    pmax: int = row("partitions of SBUF and PSUM, rows of the PE array", _PARTITIONS, PUBLISHED, TRN1_ARCH)
    quadrant_partitions: int = row("partitions of a quadrant", _QUADRANT, PUBLISHED, TRN1_ARCH)
    tensor_max_dims: int = row("dimensions of a tensor, partition included", 5, PUBLISHED, LANGUAGE_GUIDE)
    instruction_free_dims: int = row(
        "free dimensions that most instructions encode", 3, PUBLISHED, "nki-aps.rst, hardware access patterns"
    )
    access_free_dims: int = row("free dimensions of the access hardware", 4, PUBLISHED, TRN1_ARCH)
    access_count_max: int = row("largest count of a free dimension (uint16)", 65_535, PUBLISHED, TRN1_ARCH)
    access_step_max: int = row("largest step of a free dimension (int16)", 32_767, PUBLISHED, TRN1_ARCH)

    # SBUF
    sbuf_partition_bytes: int = row(
        "physical SBUF of a partition",
        (192 * KIB, 224 * KIB, 256 * KIB),
        (PUBLISHED, PUBLISHED, DERIVED),
        f"{ARCH}: 24, 28 and 32 MiB over 128 partitions",
    )
    sbuf_size_bytes: int = row(
        "physical SBUF of a core", tuple(_PARTITIONS * size * KIB for size in _SBUF_KIB), PUBLISHED, ARCH
    )
    sbuf_reserved_bytes: int = row(
        "SBUF of a partition that kernels cannot use", _RESERVED_KIB * KIB, _USABLE_LABEL, _USABLE_SOURCE
    )
    sbuf_fmax_bytes: int = row("usable SBUF of a partition", _USABLE, _USABLE_LABEL, _USABLE_SOURCE)
    sbuf_fmax: int = row(
        "usable SBUF of a partition in float32 elements",
        tuple(size // _FP32_BYTES for size in _USABLE),
        _USABLE_LABEL,
        _USABLE_SOURCE,
    )
    sbuf_min_align: int = row(
        "value of nl.tile_size.sbuf_min_align (bytes)", 4, ESTIMATE, "No page gives it; one float32 element"
    )
    sbuf_elements_max: int = row(
        "elements of a partition that one Vector/Scalar access to SBUF covers", 65_536, PUBLISHED, TRN1_ARCH
    )

    # PSUM
    psum_partition_bytes: int = row("PSUM of a partition", _BANKS * _BANK_BYTES, PUBLISHED, ARCH)
    psum_bank_bytes: int = row("bytes of a PSUM bank in a partition", _BANK_BYTES, PUBLISHED, TRN1_ARCH)
    psum_bank_fmax_bytes: int = row(
        "the same under its nl.tile_size name", _BANK_BYTES, PUBLISHED, "nki.language.tile_size.rst"
    )
    psum_bank_fmax: int = row(
        "float32 elements of a PSUM bank in a partition", _BANK_BYTES // _FP32_BYTES, PUBLISHED, TRN1_ARCH
    )
    psum_num_banks: int = row("PSUM banks of a partition", _BANKS, PUBLISHED, TRN1_ARCH)
    psum_num_banks_pe_transpose: int = row(
        "usable banks when NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE is true",
        (_BANKS, _BANKS - 1, _BANKS - 1),
        PUBLISHED,
        "nki.language.tile_size.rst: trn2 and later keep bank 7 for nc_transpose",
    )
    psum_min_align: int = row(
        "value of nl.tile_size.psum_min_align (bytes)",
        4,
        ESTIMATE,
        f"No page gives it; PSUM accumulates in 4-byte elements ({TRN1_ARCH})",
    )
    psum_elements_max: int = row(
        "elements of a partition that one Vector/Scalar access to PSUM covers", 4_096, PUBLISHED, TRN1_ARCH
    )
    psum_bfloat16_accumulate: bool = row(
        "a matmul may write and accumulate bfloat16 in PSUM", (False, False, True), PUBLISHED, TRN3_ARCH
    )

    # Tensor engine
    gemm_stationary_fmax: int = row("columns of the PE array, size of stationary", 128, PUBLISHED, TRN1_ARCH)
    gemm_moving_fmax: int = row(
        "value of nl.tile_size.gemm_moving_fmax",
        512,
        PUBLISHED,
        "tiling-overview.rst; no page says that it grows on trn3, see matmul_moving_fmax_float32",
    )
    matmul_moving_fmax_float32: int = row(
        "free size of moving that nc_matmul accepts, float32 dst", (512, 512, 4_096), PUBLISHED, _MOVING
    )
    matmul_moving_fmax_bfloat16: int = row(
        "free size of moving that nc_matmul accepts, 2-byte dst", (512, 512, 8_192), PUBLISHED, _MOVING
    )
    matmul_tile_min: int = row(
        "smallest tile of nc_matmul",
        (64, 32, 32),
        PUBLISHED,
        f"{ISA_API}, nc_matmul tiling",
    )
    fp8_double_row: bool = row(
        "matmul_perf_mode.double_row exists",
        (False, True, True),
        (PUBLISHED, PUBLISHED, DERIVED),
        f"{TRN2_ARCH}; {ISA_API} offers it from NeuronCore-v3 on, {TRN3_ARCH} does not list it",
    )
    exact_pe_transpose: bool = row(
        "is_transpose moves bits exactly and may write 16-bit PSUM", (False, True, True), PUBLISHED, TRN2_ARCH
    )
    mx_matmul: bool = row("microscaled (MX) matmul exists", (False, False, True), PUBLISHED, TRN3_ARCH)
    mx_scale_group: int = row("elements that share one MX scale", 32, PUBLISHED, TRN3_ARCH)
    mx_pack: int = row("MX elements packed in one x4 element", 4, PUBLISHED, TRN3_ARCH)

    # Vector, Scalar and GpSimd engines
    bn_stats_fmax: int = row("free size of bn_stats", 512, PUBLISHED, "tiling-overview.rst")
    vector_transpose_fmax: int = row("side of the block that Vector transposes", 32, PUBLISHED, ISA_API)
    max8_fmin: int = row("smallest free size of max8 and nc_find_index8", 8, PUBLISHED, ISA_API)
    max8_fmax: int = row("largest free size of max8 and nc_find_index8", 16_384, PUBLISHED, ISA_API)
    topk_fmin: int = row("smallest row that topk searches", 8, PUBLISHED, ISA_API)
    topk_fmax: int = row("largest row that topk searches", 65_535, PUBLISHED, ISA_API)
    topk_kmax: int = row("most results of topk", 32_767, PUBLISHED, ISA_API)
    gather_indices_max: int = row("indices of local_gather per GpSimd core", 4_096, PUBLISHED, ISA_API)
    gpsimd_cores: int = row("processors of the GpSimd engine", 8, PUBLISHED, TRN1_ARCH)
    gpsimd_core_partitions: int = row("partitions that one of them serves", 16, PUBLISHED, TRN1_ARCH)
    gpsimd_core_ram_bytes: int = row("local memory of one of them", 64 * KIB, PUBLISHED, TRN1_ARCH)
    tensor_indirection: bool = row(
        "compute operands may be gathered by index tensors", (False, False, True), PUBLISHED, TRN3_ARCH
    )
    scalar_tensor_copy: bool = row(
        "the Scalar engine copies bit-exactly (tensor_copy)", (False, True, True), PUBLISHED, TRN2_ARCH
    )
    scalar_tensor_scalar: bool = row(
        "the Scalar engine runs tensor_scalar", (False, False, True), PUBLISHED, TRN3_ARCH
    )

    # Shared ports
    vector_gpsimd_exclusive: bool = row(
        "Vector and GpSimd cannot access SBUF at the same time", (True, False, False), PUBLISHED, _PORTS
    )
    vector_fast_takes_gpsimd_port: bool = row(
        "Vector performance modes borrow GpSimd's SBUF port", (False, True, True), PUBLISHED, _PORTS
    )
    vector_scalar_psum_exclusive: bool = row(
        "Vector and Scalar cannot access PSUM at the same time", (True, False, False), PUBLISHED, _PORTS
    )
    psum_bank_conflicts: bool = row(
        "Vector and Scalar collide when both access the same PSUM bank", (True, True, True), PUBLISHED, _PORTS
    )

    # DMA
    hwdge: bool = row("the hardware makes DMA descriptors", (False, True, True), PUBLISHED, DGE_GUIDE)
    hwdge_blocks: int = row("descriptor generators of a core", (0, 2, 2), PUBLISHED, TRN2_ARCH)
    dma_sources_max: int = row("tensors that one DMA adds up", 16, PUBLISHED, ISA_API)
    dma_priorities: int = row("DMA service classes", (1, 1, 4), PUBLISHED, f"{TRN3_ARCH}; {ISA_API}")
