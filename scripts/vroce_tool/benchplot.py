# SPDX-License-Identifier: GPL-2.0-or-later
"""Draws the results of `vroce bench rdma`, with gnuplot.

gnuplot is small, and installed when first asked for.
"""

import shutil
import subprocess

from . import benchtable, hostpkgs
from .util import UserError, publish, scratch

PACKAGES = ["gnuplot-nox"]
TERMINALS = {".svg": "svg size 1100,850 dynamic font 'sans,14' "
                     "background '#ffffff'",
             ".png": "pngcairo size 1100,850 font 'sans,11' "
                     "background '#ffffff'"}
COLOURS = {"vroce": "#0b6e99", "rxe": "#c2571a"}


def check(path, yes):
    """Refuse another kind of file; make sure that gnuplot is there."""
    if path.suffix not in TERMINALS:
        raise UserError(f"--plot {path}: its name must end in "
                        f"{' or '.join(TERMINALS)}")
    if not shutil.which("gnuplot"):
        hostpkgs.ensure(yes, PACKAGES)


def _points(rows, card, **wanted):
    """Lines of 'size figure' of the rows that have these values."""
    return [f"{row['size']} {row[card]}" for row in rows
            if row[card] is not None
            and all(row[key] == value for key, value in wanted.items())]


def _bandwidth(test, rows):
    """The panel of one bandwidth test: both cards, 1 and 16 QPs."""
    sizes = sorted({row["size"] for row in rows})
    ticks = ", ".join(f'"{benchtable.size(size)}" {size}' for size in sizes)
    lines, data = [], []
    for card, colour in COLOURS.items():
        for dash, qps in enumerate(sorted({row["qps"] for row in rows}), 1):
            plural = "s" if qps > 1 else ""
            lines.append(f"'-' with linespoints lw 2 pt 7 ps 0.7 dt {dash} "
                         f"lc rgb '{colour}' title '{card}, {qps} "
                         f"QP{plural}'")
            data += [*_points(rows, card, qps=qps), "e"]
    return [f"set title '{test}' noenhanced", "set logscale xy",
            f"set xtics ({ticks})", "set xlabel 'message'",
            f"set ylabel '{rows[0]['unit']}'", "set format y '%g'",
            "set key right bottom",
            f"set xrange [{sizes[0] / 2}:{sizes[-1] * 2}]",
            "plot " + ", ".join(lines), *data]


def _latency(rows):
    """The panel of all latencies: a pair of bars for each."""
    names = [f"{row['test'].removeprefix('ib_').removesuffix('_lat')} "
             f"{benchtable.size(row['size'])}" for row in rows]
    ticks = ", ".join(f'"{name}" {at}' for at, name in enumerate(names))
    lines, data = [], []
    for side, (card, colour) in enumerate(COLOURS.items()):
        lines.append(f"'-' with boxes fs solid 0.9 lc rgb '{colour}' "
                     f"title '{card}'")
        data += [f"{at - 0.2 + 0.4 * side} {row[card]}"
                 for at, row in enumerate(rows)
                 if row[card] is not None] + ["e"]
    return ["set title 'latency (less is better)'", "unset logscale",
            "set boxwidth 0.36", f"set xtics ({ticks}) rotate by -25",
            "unset xlabel", f"set ylabel '{rows[0]['unit']}'",
            "set key left top", f"set xrange [-0.6:{len(rows) - 0.4}]",
            # Room for the key above the bars.
            "set yrange [0:*]", "set offsets 0, 0, graph 0.2, 0",
            "plot " + ", ".join(lines), *data]


def script(data, terminal, output):
    """What gnuplot is told."""
    panels, latencies = {}, []
    for row in data["rows"]:
        if row["test"].endswith("_bw"):
            panels.setdefault(row["test"], []).append(row)
        elif row["test"].endswith("_lat"):
            latencies.append(row)
    commands = [_bandwidth(test, rows) for test, rows in panels.items()]
    if latencies:
        commands.append(_latency(latencies))
    head = [f"set terminal {terminal}", f"set output '{output}'",
            "set grid lc rgb '#dddddd'", "set border 3", "set tics nomirror",
            f"set multiplot layout {(len(commands) + 1) // 2},"
            f"{min(2, len(commands))} title 'two guests: the vroce card and "
            f"soft-RoCE (memcpy of the host: {data['memcpy_gib_s']} GiB/s)'"]
    lines = head + [line for panel in commands for line in panel]
    return "\n".join(lines + ["unset multiplot"]) + "\n"


def draw(data, path):
    """Draw what benchrdma.run() returned into the file path."""
    with scratch("plot") as folder:
        output = folder / f"plot{path.suffix}"
        try:
            result = subprocess.run(
                ["gnuplot"], text=True, capture_output=True, check=False,
                input=script(data, TERMINALS[path.suffix], output.name),
                cwd=folder)
        except FileNotFoundError:
            raise UserError("gnuplot is not there; install the package "
                            f"{PACKAGES[0]}") from None
        if result.returncode or not output.exists():
            raise UserError(f"gnuplot failed: {result.stderr.strip()}")
        # The folder may be on another file system than path.
        target = path.absolute()
        new = target.with_name(f".{target.name}.new")
        shutil.copy(output, new)
        publish(new, target)
