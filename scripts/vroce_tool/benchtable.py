# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables of figures, and the host's own speed that they are compared with."""

import ctypes
import time

PIECE = 1 << 20
REGION = 256 << 20


def show(head, rows):
    """Print rows of strings below a head, numbers to the right."""
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *rows)]
    for row in [head, *rows]:
        print("  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths))).rstrip())


def number(value):
    """A figure with about three digits that count."""
    if value is None:
        return "-"
    for limit, digits in ((10, 2), (100, 1)):
        if abs(value) < limit:
            return f"{value:.{digits}f}"
    return f"{value:.0f}"


def size(value):
    """Bytes, as 64 B, 4 KiB or 1 MiB."""
    for shift, unit in ((20, "MiB"), (10, "KiB")):
        if value >= 1 << shift and value % (1 << shift) == 0:
            return f"{value >> shift} {unit}"
    return f"{value} B"


def memcpy_gib_s(region=REGION, passes=3):
    """What one processor of this host copies, GiB/s: the best of passes.

    1 MiB pieces walk through two regions, so that nothing is in the cache.
    """
    source, target = (ctypes.create_string_buffer(region) for _ in range(2))
    begin = ctypes.addressof(source), ctypes.addressof(target)
    for address in begin:
        ctypes.memset(address, 1, region)
    best = None
    for _ in range(passes):
        # Of this processor: what else the host does takes no part in it.
        began = time.thread_time()
        for offset in range(0, region, PIECE):
            ctypes.memmove(begin[1] + offset, begin[0] + offset, PIECE)
        seconds = time.thread_time() - began
        best = seconds if best is None else min(best, seconds)
    return round(region / best / (1 << 30), 2)
