"""Hardware table 2 of 3: clocks, initiation intervals, latencies and modes of the compute engines.

Part of `nki.target`; read the numbers through a `Target`. An instruction occupies its engine for an interval
and delivers its result one latency after it has been streamed; both are kept apart here. The coefficients of
a single instruction (how many cycles an element) stand with that instruction.
"""

from __future__ import annotations

from dataclasses import dataclass

from nki.target_facts import (
    ARCH,
    DERIVED,
    DMA_OVERVIEW,
    ESTIMATE,
    ISA_API_2_26,
    NS,
    PERF_GUIDE,
    PUBLISHED,
    THROTTLING,
    TRN1_ARCH,
    TRN2_ARCH,
    TRN3_ARCH,
    TUTORIAL,
    US,
    row,
)

_TRN1_ONLY = (PUBLISHED, ESTIMATE, ESTIMATE)
_UNCHANGED = "no figure for later generations, assumed unchanged"
_VECTOR_MODES = f"{TRN2_ARCH}, Vector Engine Performance Mode; trn3 keeps the widths ({TRN3_ARCH})"


@dataclass(frozen=True, init=False, repr=False, eq=False)
class EngineTiming:
    """Time on the compute engines, and between them."""

    # Clocks
    tensor_clock_mhz: int = row("clock of the PE array", (2_800, 2_400, 2_400), PUBLISHED, ARCH)
    vector_clock_mhz: int = row("clock of the Vector engine", (1_120, 960, 1_200), PUBLISHED, ARCH)
    scalar_clock_mhz: int = row("clock of the Scalar engine", (1_400, 1_200, 1_200), PUBLISHED, ARCH)
    gpsimd_clock_mhz: int = row("clock of the GpSimd engine", (1_400, 1_200, 1_200), PUBLISHED, ARCH)
    sync_clock_mhz: int = row(
        "clock of the Sync engine",
        (1_400, 1_200, 1_200),
        ESTIMATE,
        "No figure; a sequencer of the same family as that of the Scalar engine",
    )

    # Tensor engine
    tensor_macs_per_cycle: int = row("dense multiply-adds of the PE array", 128 * 128, PUBLISHED, TRN1_ARCH)
    tensor_init_cycles: int = row(
        "least interval of two MultiplyMoving",
        64,
        _TRN1_ONLY,
        f"{TRN1_ARCH}, MM_INIT_LATENCY; {_UNCHANGED}",
    )
    tensor_fill_cycles: int = row(
        "from the last column streamed in to the result in PSUM",
        405,
        (DERIVED, DERIVED, ESTIMATE),
        f"Middle of the durations less streaming and waiting: 328, 370 and 483 cycles in profile figures 20, 26 and 18 "
        f"of {PERF_GUIDE}, 396 in figure 7 of use-neuron-profile.rst; trn3 has the same array and clock",
    )
    tensor_fast_load_factor: int = row(
        "columns a LoadStationary takes in per cycle, 1- and 2-byte types",
        4,
        PUBLISHED,
        f"{TRN1_ARCH}, Fast Weight Load; {PERF_GUIDE}, optimization 7",
    )
    tensor_load_latency_cycles: int = row(
        "from the last column of a LoadStationary to its weights being usable",
        117,
        (DERIVED, ESTIMATE, ESTIMATE),
        f"One column lasts 67 ns less 25 ns of waiting in figure 20 of {PERF_GUIDE}; assumed unchanged",
    )
    tensor_fp32_passes: int = row(
        "MultiplyMoving work of float32 against 2-byte types",
        4,
        PUBLISHED,
        f"{TRN1_ARCH}; {ISA_API_2_26}",
    )
    tensor_fp32_instructions: int = row(
        "LoadStationary + MultiplyMoving pairs of a float32 matmul (two passes each)",
        2,
        (ESTIMATE, DERIVED, ESTIMATE),
        f"Counters of {TUTORIAL}: 65536 matmul instructions for 32768 nc_matmul (trn2); others alike",
    )
    tensor_fp32_load_cycles: int = row(
        "cycles a column of each float32 LoadStationary",
        3,
        (ESTIMATE, DERIVED, ESTIMATE),
        f"About 200 ns for 128 columns, tensor_load_latency_cycles included, in the v5 timeline of {TUTORIAL} (trn2): "
        "no fast load; others alike",
    )
    tensor_fp32_onezero_passes: int = row(
        "passes when an operand is declared to hold ones and zeros", 2, PUBLISHED, f"{ISA_API_2_26}: up to 2x"
    )
    tensor_fp32_transpose_passes: int = row(
        "passes of a float32 transpose", (4, 2, 2), PUBLISHED, f"{TRN2_ARCH}, transpose mode: 2x faster"
    )
    tensor_double_row_factor: int = row(
        "rows an fp8 double_row matmul contracts in the time of one",
        (1, 2, 2),
        (PUBLISHED, PUBLISHED, ESTIMATE),
        f"{TRN2_ARCH}, Double FP8; on trn3 the API offers the mode but no width entry confirms its rate",
    )
    tensor_mx_factor: int = row(
        "rows an MX matmul contracts in the time of one", (1, 1, 4), PUBLISHED, f"{TRN3_ARCH}, Quad-MXFP8"
    )
    tensor_background_transpose: bool = row(
        "a transpose may overlap another matmul",
        (False, False, True),
        PUBLISHED,
        TRN3_ARCH,
    )
    tensor_warmup_ps: int = row(
        "work the PE array must do before it runs at full rate; also the window of tensor_rearm_percent",
        (0, 3 * US, 3 * US),
        (ESTIMATE, PUBLISHED, PUBLISHED),
        f"{THROTTLING}: about 3 us on trn2 and trn3; nothing is said of trn1",
    )
    tensor_cold_percent: int = row(
        "rate of the PE array before that",
        (100, 50, 50),
        (ESTIMATE, PUBLISHED, PUBLISHED),
        f"{THROTTLING}: about half; the first matmuls of profile_phase_2.png start 421 ns apart",
    )
    tensor_rearm_percent: int = row(
        "utilisation of a window under which the limit returns; a product on no more cells of the array never lifts it",
        (0, 50, 50),
        (ESTIMATE, PUBLISHED, PUBLISHED),
        f"{THROTTLING}, which counts utilisation in operations; nothing is said of trn1",
    )

    # Vector engine
    vector_min_cycles: int = row("least interval of two Vector instructions", 64, PUBLISHED, ISA_API_2_26)
    vector_psum_cycles: int = row(
        "what a Vector instruction that reads PSUM holds its engine for beyond its streaming",
        (0, 60, 60),
        (PUBLISHED, DERIVED, ESTIMATE),
        f"trn2: starting a tensor access, about 60 cycles ({TRN1_ARCH}); starts are 600 ns apart for 533 of streaming "
        f"in the v5 timeline of {TUTORIAL}, 656 for 533 in profile_phase_2.png; trn1: none in the formulas of the "
        f"{ISA_API_2_26}; trn3 as trn2",
    )
    vector_latency_ps: int = row(
        "what a Vector instruction lasts beyond its streaming",
        (150 * NS, 150 * NS, 120 * NS),
        (ESTIMATE, DERIVED, ESTIMATE),
        f"trn2: 687 ns for 512 float32 in the v5 timeline of {TUTORIAL}; trn1: between the ~100 static "
        f"cycles of {TRN1_ARCH} and 358 ns in figure 10 of {PERF_GUIDE}; trn3: the trn2 cycles at its clock",
    )
    vector_copy_contiguous_factor: int = row(
        "speed of tensor_copy/tensor_scalar, 2-byte floats, both in SBUF and contiguous",
        (1, 4, 4),
        (PUBLISHED, PUBLISHED, DERIVED),
        _VECTOR_MODES,
    )
    vector_copy_factor: int = row(
        "the same without contiguity, or contiguous with exactly one side in PSUM",
        (1, 2, 2),
        (PUBLISHED, PUBLISHED, DERIVED),
        _VECTOR_MODES,
    )
    vector_fp32_copy_factor: int = row(
        "speed of tensor_copy/tensor_scalar, float32, both in SBUF and contiguous",
        (1, 2, 2),
        (PUBLISHED, DERIVED, ESTIMATE),
        f"256 elements a cycle in the width table of {TRN2_ARCH}, ~415 ns for 512 in the v5 timeline of "
        f"{TUTORIAL}; the list of instructions there names 2-byte types only",
    )
    vector_tensor_tensor_factor: int = row(
        "speed of tensor_tensor, everything 2-byte floats, inputs in SBUF",
        (1, 2, 2),
        (PUBLISHED, PUBLISHED, DERIVED),
        _VECTOR_MODES,
    )
    vector_fp8_modes: bool = row(
        "the modes above also take fp8",
        (False, False, True),
        (PUBLISHED, PUBLISHED, DERIVED),
        f"Width tables of {TRN2_ARCH} and {TRN3_ARCH}; no list of instructions for trn3",
    )
    vector_quad_rate: int = row(
        "elements a lane-cycle of exponential, quantize_mx and rand2",
        (1, 1, 4),
        PUBLISHED,
        f"{TRN3_ARCH}, Vector Engine; the instructions do not exist before",
    )

    # Scalar engine
    scalar_min_cycles: int = row("least interval of two Scalar instructions", 64, PUBLISHED, ISA_API_2_26)
    scalar_latency_ps: int = row(
        "what a Scalar instruction lasts beyond its streaming",
        (158 * NS, 293 * NS, 293 * NS),
        (DERIVED, DERIVED, ESTIMATE),
        f"trn1: 159 ns for one element, profile figure 16 of {PERF_GUIDE}; trn2: 398 ns for 128 and 3709 ns "
        f"for 4096 elements in figures 3 and 5 of {DMA_OVERVIEW}; trn3 assumed as trn2",
    )
    scalar_accumulator_cycles: int = row(
        "reading the accumulation register out",
        64,
        PUBLISHED,
        f"{TRN1_ARCH}; {ISA_API_2_26}",
    )
    scalar_table_load_ps: int = row(
        "loading another set of activation tables",
        1_283 * NS,
        (ESTIMATE, DERIVED, ESTIMATE),
        f"Figure 3 of {DMA_OVERVIEW} (trn2); others assumed alike",
    )
    scalar_copy_factor: int = row(
        "speed of tensor_copy/tensor_scalar on Scalar for 2-byte floats",
        (1, 1, 2),
        PUBLISHED,
        f"{TRN3_ARCH}, Scalar Engine performance mode",
    )

    # GpSimd engine
    gpsimd_min_cycles: int = row("least interval of two GpSimd instructions", 64, PUBLISHED, ISA_API_2_26)
    gpsimd_startup_cycles: int = row("start of a GpSimd instruction", 150, PUBLISHED, ISA_API_2_26)

    # Access to SBUF and PSUM
    access_start_cycles: int = row(
        "starting a tensor access, partly hidden by overlap", 60, _TRN1_ONLY, f"{TRN1_ARCH}; {_UNCHANGED}"
    )
    access_stride_bytes: int = row(
        "largest innermost stride at full rate",
        16,
        _TRN1_ONLY,
        f"{TRN1_ARCH}, Access pattern; {_UNCHANGED}",
    )
    access_strided_factor: int = row(
        "slow-down beyond that stride", 2, _TRN1_ONLY, f"{TRN1_ARCH}, Access pattern; {_UNCHANGED}"
    )
    dynamic_address_min_cycles: int = row(
        "least interval of a compute instruction with a register address",
        600,
        _TRN1_ONLY,
        f"{ISA_API_2_26}, tensor_copy_dynamic_src; {_UNCHANGED}",
    )

    # Synchronisation and sequencers
    semaphore_signal_ps: int = row(
        "end of an instruction to its semaphore being visible",
        10 * NS,
        (ESTIMATE, DERIVED, ESTIMATE),
        f"8-11 ns in figures 3 and 5 of {DMA_OVERVIEW} (trn2); others assumed alike",
    )
    semaphore_wake_ps: int = row(
        "semaphore visible to the waiting engine starting",
        20 * NS,
        (DERIVED, DERIVED, ESTIMATE),
        f"18-22 ns in figures 3 and 5 of {DMA_OVERVIEW} (trn2); on trn1 both together are 30 ns, the gap "
        f"between dependent instructions in figure 16 of {PERF_GUIDE}",
    )
    semaphore_instruction_ps: int = row(
        "an instruction that only waits for or raises a semaphore",
        9 * NS,
        _TRN1_ONLY,
        f"Profile figures 12 and 13 of {PERF_GUIDE}; {_UNCHANGED}",
    )
    register_move_ps: int = row("moving a register", 30 * NS, ESTIMATE, "No figure; a few sequencer steps")
    register_memory_ps: int = row(
        "loading or storing a register", 200 * NS, ESTIMATE, "No figure; two tensor accesses and a semaphore"
    )
    loop_iteration_ps: int = row(
        "turn of a loop that runs on the device",
        100 * NS,
        ESTIMATE,
        "No figure; add, compare, branch, refetch",
    )
    core_barrier_ps: int = row(
        "meeting of the cores of a launch",
        1_500 * NS,
        ESTIMATE,
        "No figure; a semaphore by DMA and a wait",
    )

    # The launch
    launch_start_ps: int = row(
        "start of a kernel to its first instruction",
        (9 * US, 7 * US, 7 * US),
        (DERIVED, ESTIMATE, ESTIMATE),
        "The shortest public kernels, two loads, an addition and a store, last 19 us on trn1 and 15 on trn2, "
        "launch_end_ps included; trn3 assumed as trn2",
    )
    launch_end_ps: int = row(
        "last semaphore to the end of the kernel",
        (5 * US, 3 * US, 3 * US),
        (DERIVED, ESTIMATE, ESTIMATE),
        "5.1 us after the last compute in mamba_v1_profile_zoomed.png (trn1); others as launch_start_ps",
    )
