"""The random number generators step by step, in Python integers, as the papers give them. Tests nothing."""

from __future__ import annotations

MASK = 0xFFFFFFFF


def xorshift(x: int, count: int) -> tuple[int, list[int]]:
    """Marsaglia's xorshift32 (13, 17, 5): the last state and the words."""
    words = []
    for _ in range(count):
        x ^= x << 13 & MASK
        x ^= x >> 17
        x ^= x << 5 & MASK
        words.append(x)
    return x, words


def xorwow(state: list[int], count: int) -> tuple[list[int], list[int]]:
    """Marsaglia's xorwow: the last state (x, y, z, w, v, d) and the words."""
    x, y, z, w, v, d = state
    words = []
    for _ in range(count):
        t = x ^ (x >> 2)
        x, y, z, w = y, z, w, v
        v = (v ^ (v << 4 & MASK)) ^ (t ^ (t << 1 & MASK))
        d = d + 362437 & MASK
        words.append(d + v & MASK)
    return [x, y, z, w, v, d], words


def side_by_side(state: list[int], count: int) -> tuple[list[int], list[int]]:
    """Several xorwow generators that take turns, each making as many words as the first."""
    groups = [state[i : i + 6] for i in range(0, len(state), 6)]
    steps = -(-count // len(groups))
    made = [xorwow(group, steps) for group in groups]
    words = [made[i % len(groups)][1][i // len(groups)] for i in range(count)]
    return [word for after, _ in made for word in after], words
