"""Weights of one unit - an expert, or a part of its width - on their way to SBUF; the expert is known on the device.

Letters:  E experts   H width of the model, h blocks of it   I width of an expert, w of it in a unit, i blocks of that
          m tokens in a block

A block is what the 128 partitions hold of a contracted axis. Where two elements share a byte (fp4), 128 bytes make two
blocks: the even places and the odd ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import spans
from nki_lib.moe.activations import NO_CHANNELS, Channels
from nki_lib.moe.widening import multiply_scales, place_codes
from nki_lib.quantization.formats import BLOCK

WIDENED = 2048  # elements of a partition that are widened at a time
UNSCALED_ROOM = 4 * WIDENED  # bytes of a partition: four pieces of fp8 that come in or are being widened
SCALED_ROOM = 6 * WIDENED  # three with their scales; for fp4 twice that, as its codes become words first
SLACK = 24576  # bytes of a partition for tables, hidden values and what is on its way


@dataclass(frozen=True)
class Experts:
    """The tensors in HBM: gate_up [E, H, 2, I], down [E, I, H], biases and scales as the operator takes them."""

    gate_up: Any
    down: Any
    gate_up_bias: Any = None
    down_bias: Any = None
    gate_up_scale: Any = None
    down_scale: Any = None

    @property
    def packed(self) -> int:
        """Elements in a byte along the contracted axis, 2 for fp4."""
        return self.down.shape[2] // self.gate_up.shape[1]

    @property
    def scaled_blocks(self) -> bool:
        """Whether a scale belongs to 32 elements of the contracted axis (MX)."""
        return self.down_scale is not None and len(self.down_scale.shape) == 3


@dataclass(frozen=True)
class Places:
    """One block of a contracted axis: the places start, start + step, ... before stop; number: which block it is."""

    start: int
    stop: int
    step: int
    number: int

    @property
    def size(self) -> int:
        """How many partitions it takes."""
        return -(-(self.stop - self.start) // self.step)

    @property
    def places(self) -> slice:
        """Them as a subscript."""
        return slice(self.start, self.stop, self.step)


@dataclass(frozen=True)
class Unit:
    """Room for the weights of a unit, in SBUF.

    gate_up [128, h, 2, w], down [128, i, H]; columns [128, i, 4] float32, the gate's scale and bias, then those of up;
    scale, bias [m, H]: of down, the same in every row. The last block of h and of i may use fewer partitions.
    """

    gate_up: Any
    down: Any
    columns: Any
    scale: Any
    bias: Any


def places_of(count: int, packed: int = 1) -> list[Places]:
    """The blocks of an axis with `count` places."""
    side = nl.tile_size.pmax * packed
    found = []
    for low, high in spans(count, side):
        for nibble in range(packed):
            found.append(Places(low + nibble, high, packed, len(found)))
    return found


def held_as(experts: Experts, dtype: Any) -> Any:
    """What the weights are in SBUF: the type of x, or fp8 as it is where the Tensor engine takes it beside 16 bits.

    Weights of MX, times their scales, would overflow in float16: beside it they are bfloat16, which has the exponents.
    """
    if experts.scaled_blocks:
        return nl.float32 if dtype == nl.float32 else nl.bfloat16
    stored = experts.gate_up.dtype
    direct = stored == nl.float8_e5m2 or nisa.get_nc_version() > nisa.nc_version.gen3
    if experts.down_scale is None or dtype.itemsize > 2 or not direct:
        return dtype
    return stored


@dataclass(frozen=True)
class Plan:
    """How experts come in: pieces, the parts of their width as (start, stop), and how many units lie in SBUF."""

    pieces: list[Any]
    places: int


def plan_units(width: int, inner: int, dtype: Any, experts: Experts) -> Plan:
    """The fewest pieces of which two fit, or those of 128 channels if only one does.

    One piece, or an even number if that can be had: then units take turns from expert to expert, too.
    """
    packed, held = experts.packed, held_as(experts, dtype)
    rows = [row for row in (experts.down_bias, experts.down_scale) if row is not None and len(row.shape) == 2]
    others = width * (2 * dtype.itemsize + 4 + 2 * 4 * len(rows)) + SLACK
    if experts.gate_up.dtype != held:
        others += packed * (SCALED_ROOM if experts.scaled_blocks else UNSCALED_ROOM)
    room = nl.tile_size.sbuf_fmax_bytes - others
    step = nl.tile_size.pmax * packed
    # Bytes of a partition for one step of channels.
    each = packed * (2 * len(places_of(width, packed)) * nl.tile_size.pmax + width) * held.itemsize
    steps, most = -(-inner // step), max(1, room // 2 // each)
    parts = -(-steps // most)
    if parts > 1:
        parts += parts % 2
    return Plan(spans(inner, -(-steps // parts) * step), 1 if 2 * each > room else 2)


def make_unit(width: int, inner: int, dtype: Any, experts: Experts, rows: int) -> Unit:
    """Room for a unit. Dimensions: width H, inner w, rows m. dtype: that of x."""
    side = nl.tile_size.pmax
    h, i = (len(places_of(count, experts.packed)) for count in (width, inner))
    held = held_as(experts, dtype)
    by_channel = experts.gate_up_scale is not None and not experts.scaled_blocks
    columns, scale, bias = None, None, None
    if by_channel or experts.gate_up_bias is not None:
        columns = nl.ndarray((side, i, 4), dtype=nl.float32, buffer=nl.sbuf)
    if by_channel:
        scale = nl.ndarray((rows, width), dtype=nl.float32, buffer=nl.sbuf)
    if experts.down_bias is not None:
        bias = nl.ndarray((rows, width), dtype=experts.down_bias.dtype, buffer=nl.sbuf)
    return Unit(
        nl.ndarray((side, h, 2, inner), dtype=held, buffer=nl.sbuf),
        nl.ndarray((side, i, width), dtype=held, buffer=nl.sbuf),
        columns,
        scale,
        bias,
    )


class Loader:
    """Fills units with channels of experts.

    expert: a register; ahead: is added to it; span: the channels of the unit, start to stop - 1, of this expert. With
    an expert after the last nothing is loaded.
    """

    def __init__(self, experts: Experts, expert: Any, ahead: int, span: Any) -> None:
        self.experts = experts
        self.expert = expert
        self.ahead = ahead
        self.start, self.stop = span

    def load(self, unit: Unit) -> None:
        """All of it. The bias of down is added once, with the first channels of an expert."""
        experts = self.experts
        width, w = experts.down.shape[2], self.stop - self.start
        inner = experts.gate_up.shape[3]
        self.load_matrix(
            unit.gate_up[:, :, :, :w],
            experts.gate_up,
            experts.gate_up_scale,
            width,
            self.start,
            (2, inner),
            0,
        )
        down = unit.down.expand_dim(2)
        self.load_matrix(down, experts.down, experts.down_scale, w, 0, (1, width), self.start)
        of_gate_up = (experts.gate_up_scale if unit.scale is not None else None, experts.gate_up_bias)
        for position, tensor in enumerate(of_gate_up):
            if tensor is not None:
                self.load_columns(unit.columns, tensor, position)
        for row, tensor in ((unit.scale, experts.down_scale), (unit.bias, experts.down_bias)):
            if row is None:
                continue
            if row is unit.bias and self.start:
                nisa.memset(dst=row, value=0.0)
                continue
            self.fill(row, tensor, [[0, row.shape[0]], [1, width]], 0)

    def load_matrix(
        self, dst: Any, tensor: Any, scales: Any, count: int, column: int, outer: Any, first: int
    ) -> None:
        """dst = rows first ... of tensor[expert], a matrix [count, matrices, columns] of which w columns are wanted.

        Dimensions: dst [128, blocks, matrices, w]; outer: (matrices, columns of each).
        """
        experts, w = self.experts, dst.shape[3]
        matrices, columns = outer
        for places in places_of(count, experts.packed)[:: experts.packed]:
            row = (first + places.start) // experts.packed
            targets = [dst[: places.size, places.number + i, :, :] for i in range(experts.packed)]
            if dst.dtype == tensor.dtype:
                pattern = [[matrices * columns, places.size], [columns, matrices], [1, w]]
                self.fill(targets[0], tensor, pattern, row * matrices * columns + column)
                continue
            for low, high in spans(w, WIDENED // matrices):
                parts = [target[:, :, low:high] for target in targets]
                engine = nisa.engine.scalar if places.number % 2 else nisa.engine.vector
                self.load_narrow(parts, tensor, scales, row, columns, column + low, engine)

    def load_narrow(
        self, targets: list[Any], tensor: Any, scales: Any, row: int, columns: int, column: int, engine: Any
    ) -> None:
        """One block, or of fp4 the two of it, that needs other numbers than HBM holds.

        Dimensions: targets [p, matrices, w]. row, column: where it begins; engine: what converts where nothing is
        multiplied.
        """
        shape = targets[0].shape
        pitch = shape[1] * columns
        inner = [[columns, shape[1]], [1, shape[2]]]
        raw = nl.ndarray(shape, dtype=tensor.dtype, buffer=nl.sbuf)
        self.fill(raw, tensor, [[pitch, shape[0]], *inner], row * pitch + column)
        if not self.experts.scaled_blocks:
            nisa.tensor_copy(dst=targets[0], src=raw, engine=engine)
            return
        scale = nl.ndarray(shape, dtype=scales.dtype, buffer=nl.sbuf)
        repeat = BLOCK // self.experts.packed
        rows = [[pitch, shape[0] // repeat], [0, repeat]]
        self.fill(scale, scales, [*rows, *inner], row // repeat * pitch + column)
        if scale.dtype == nl.uint8:
            scale = scale.view(nl.float8_e8m0fnu)
        if len(targets) == 1:
            multiply_scales(targets[0], raw, scale, 1)
            return
        codes = nl.ndarray(shape, dtype=nl.uint16, buffer=nl.sbuf)
        nisa.tensor_copy(dst=codes, src=raw, engine=nisa.engine.scalar)
        for half in range(2):
            bits = nl.ndarray(shape, dtype=nl.uint16, buffer=nl.sbuf)
            place_codes(bits, codes, half)
            multiply_scales(targets[half], bits.view(nl.bfloat16), scale, 2)

    def load_columns(self, columns: Any, tensor: Any, position: int) -> None:
        """Scales (position 0) or biases (1) as columns. Dimensions: columns [128, i, 4], tensor [E, 2, I]."""
        inner = tensor.shape[2]
        for places in places_of(self.stop - self.start, self.experts.packed):
            for of in range(2):
                place = columns[: places.size, places.number, 2 * of + position : 2 * of + position + 1]
                offset = of * inner + self.start + places.start
                self.fill(place, tensor, [[places.step, places.size], [1, 1]], offset)

    def fill(self, dst: Any, tensor: Any, pattern: list[Any], offset: int) -> None:
        """dst = elements of tensor[expert], if it exists; a conversion needs descriptors made by GpSimd."""
        each = tensor.size // tensor.shape[0]
        source = tensor.ap(
            pattern=pattern, offset=self.ahead * each + offset, scalar_offset=self.expert, indirect_dim=0
        )
        hardware = nisa.get_nc_version() > nisa.nc_version.gen2 and dst.dtype == tensor.dtype
        mode = nisa.dge_mode.hwdge if hardware else nisa.dge_mode.unknown
        outside = self.ahead and tensor.shape[0] % 2
        nisa.dma_copy(
            dst=dst,
            src=source,
            oob_mode=nisa.oob_mode.skip if outside else nisa.oob_mode.error,
            dge_mode=mode,
        )


def channels_of(unit: Unit, experts: Experts, places: Places) -> Channels:
    """Scales and biases of the channels of one block."""
    if unit.columns is None:
        return NO_CHANNELS
    columns = [unit.columns[: places.size, places.number, i : i + 1] for i in range(4)]
    scaled, biased = unit.scale is not None, experts.gate_up_bias is not None
    return Channels(
        columns[0] if scaled else None,
        columns[2] if scaled else None,
        columns[1] if biased else None,
        columns[3] if biased else None,
    )
