"""The gradients of a depthwise convolution that do not go to x; that of x is a convolution again.

Letters: see `kernel.py`.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from nki_lib.common.tiles import fetch, load, spans
from nki_lib.norm.blocks import Late
from nki_lib.sequence.columns import load_column, sum_of
from nki_lib.sequence.depthwise_conv1d.kernel import first_tap, load_filters, load_window, other_taps

PART = 1024  # positions at a time: products of all taps are in flight
GPSIMD_SHARE = 3  # of so many taps one has its products from GpSimd


@nki.jit
def depthwise_conv1d_backward(x: Any, grad: Any, weight: Any, bias: Any, left: int, silu: bool) -> Any:
    """The gradients of the sums before silu, of the taps and of the bias.

    Dimensions: x [C, L], grad [C, T], weight [C, K], bias [C] or None -> sums [C, K + 1] float32, the taps' and after
    them the bias's; with silu also slope [C, T] float32, which is else grad.

    Pseudocode:
        for each tile of 128 channels, for each part of the output:
            with silu: convolve again; slope = grad * silu'(sum + bias); store
            of tap k: sum of slope * its view; of the bias: sum of slope
    """
    channels, positions = grad.shape
    taps = weight.shape[1]
    sums = nl.ndarray((channels, taps + 1), dtype=nl.float32, buffer=nl.shared_hbm)
    slopes = nl.ndarray(grad.shape, dtype=nl.float32, buffer=nl.shared_hbm) if silu else None
    summing = Late(add_sums)
    multiplying = Late(multiply)
    convolving = Late(other_taps)
    for start, stop in spans(channels, nl.tile_size.pmax):
        total = nl.ndarray((stop - start, taps + 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=total, value=0.0)
        filters = load_filters(weight[start:stop, :], False) if silu else []
        shift = load_column(None if bias is None else bias[start:stop])
        for low, high in spans(positions, PART):
            seen = load_window(x[start:stop, :], low - left, high - left + taps - 1)
            slope = load(grad[start:stop, low:high])
            before = None
            if silu:
                before = first_tap(seen, filters, shift)
                convolving.call(before, before, seen, filters)
            target = slopes[start:stop, low:high] if silu else None
            last = sums[start:stop, :] if high == positions else None
            multiplying.call(summing, (total, last), slope, before, seen, target)
    for late in (convolving, multiplying, summing):
        late.finish()
    return (sums, slopes) if silu else sums


def multiply(summing: Any, totals: Any, grad: Any, before: Any, seen: Any, target: Any) -> None:
    """slope = grad * silu'(before), or grad; store it; its products with every tap's view. Some run on GpSimd.

    Dimensions: grad, before [m, w], before may be None, seen [m, w + K - 1], target [m, w] in HBM or None.
    """
    slope, width = grad, grad.shape[1]
    if before is not None:
        rise, slope = (nl.ndarray(grad.shape, dtype=nl.float32, buffer=nl.sbuf) for _ in range(2))
        nisa.activation(dst=rise, op=nl.silu_dx, data=before)
        nisa.tensor_tensor(dst=slope, data1=rise, data2=grad, op=nl.multiply, engine=nisa.engine.vector)
        fetch(dst=target, src=slope)
    products = [slope]
    for k in range(seen.shape[1] - width + 1):
        product = nl.ndarray(grad.shape, dtype=nl.float32, buffer=nl.sbuf)
        engine = nisa.engine.gpsimd if k % GPSIMD_SHARE == 1 else nisa.engine.vector
        view = seen[:, k : k + width]
        nisa.tensor_tensor(dst=product, data1=slope, data2=view, op=nl.multiply, engine=engine)
        products.append(product)
    summing.call(*totals, products)


def add_sums(total: Any, last: Any, products: list[Any]) -> None:
    """Add the sums of the taps' products, and of the slope, which is the first of them; store after the last part.

    Dimensions: total [m, K + 1], last the same in HBM or None, products K + 1 of [m, w].
    """
    sums = nl.ndarray(total.shape, dtype=nl.float32, buffer=nl.sbuf)
    for k, product in enumerate((*products[1:], products[0])):
        sum_of(sums[:, k : k + 1], product)
    nisa.tensor_tensor(dst=total, data1=total, data2=sums, op=nl.add)
    if last is not None:
        nisa.dma_copy(dst=last, src=total)
