"""Samples about loops: `while` and `for` with `else`, `break`, `continue`, and tests that call, pop or bind."""

from __future__ import annotations

from tests.frontend.sample_table import sample


@sample((0,), (1,), (7,))
def while_else(n):
    found = []
    while n < 5:
        n += 1
        if n == 3:
            continue
        if n == 100:
            break
        found.append(n)
    else:
        found.append("else")
    return found


@sample((0,), (3,), (9,))
def while_break(n):
    log = []
    while n:
        n -= 1
        if n == 5:
            break
        log.append(n)
    else:
        log.append("else")
    while True:
        log.append("once")
        break
    return log, n


@sample(([1, 2, 3],), ([],))
def while_pop(items):
    total = 0
    while items and items[-1] > 0:
        total += items.pop()
    while (last := len(items)) < 3:
        items.append(last)
    return total, items, last


@sample((iter([1, 2, 0]),))
def while_stop_iteration(numbers):
    seen = []
    while next(numbers) > -1:
        seen.append(1)
    return seen


@sample((3,), (-1,), (0,))
def for_else(n):
    for i in range(n):
        if i == 2:
            break
    else:
        return "else"
    return i
