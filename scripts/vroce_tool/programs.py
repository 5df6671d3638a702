# SPDX-License-Identifier: GPL-2.0-or-later
"""The usual RDMA programs between two guests, and what they report.

Each function takes a Bench (see e2e.py), runs one program, raises
AssertionError with its output unless it did what it should, and returns its
figures: a dict of numbers and short strings, the units in the names.
"""

import re

# Busy polling of two guests on two host processors starves the one that works.
# (ib_write_bw has no such option: its server does nothing anyway.)
EVENTS = "-e"


def describe(figures):
    """Figures as words: numbers before their unit, text behind its name."""
    return ", ".join(f"{value} {name}" if isinstance(value, (int, float))
                     else f"{name} {value}" for name, value in figures.items())


def number(pattern, text, what):
    """The number in the first group of a pattern that must be in text."""
    match = re.search(pattern, text)
    assert match, f"no {what} in:\n{text}"
    return float(match[1])


def ping(bench, size=56, count=5):
    """Ethernet: the card's own network interface carries IPv4."""
    other = bench.guest(2).ipv4
    text = bench.run(1, f"ping -i 0.2 -c {count} -s {size} {other}")
    loss = number(r"([\d.]+)% packet loss", text, "loss")
    assert loss == 0, text
    return {"round trip ms": number(r"= [\d.]+/([\d.]+)/", text, "time")}


def ping6(bench):
    other = bench.guest(2).ipv6
    text = bench.run(1, f"ping -6 -i 0.2 -c 3 {other}")
    assert number(r"([\d.]+)% packet loss", text, "loss") == 0, text
    return {"round trip ms": number(r"= [\d.]+/([\d.]+)/", text, "time")}


def works(bench):
    """Ethernet and RDMA work between the guests, whatever happened before."""
    ping(bench, count=2)
    pingpong(bench, count=100)


def devinfo(bench):
    """Both guests have a device whose port is up."""
    figures = {}
    for guest in (1, 2):
        device = bench.guest(guest).rdma()["dev"]
        text = bench.run(guest, f"ibv_devinfo -d {device}")
        assert "PORT_ACTIVE" in text and "link_layer:\t\tEthernet" in text, text
        figures[f"guest {guest}"] = device
        figures["path MTU"] = int(number(r"active_mtu:\s+(\d+)", text, "MTU"))
    return figures


def pingpong(bench, kind="rc", size=4096, count=1000, options=EVENTS):
    """ibv_{rc,uc,ud,srq}_pingpong, which checks the data that it gets."""
    common = (f"ibv_{kind}_pingpong -d {{dev}} -g {{gid}} -c -s {size} "
              f"-n {count} {options}")
    result = bench.pair(common, f"{common} {{a}}")
    assert "invalid data" not in result.a.stdout + result.b.stdout, \
        result.b.stdout
    return {"us per round": number(r"= ([\d.]+) usec/iter", result.b.stdout,
                                   "time")}


def rping(bench, size=4096, count=20):
    """rdma_cm, and READ, WRITE and SEND with validated data."""
    common = f"rping -v -V -C {count} -S {size} -a {{a}}"
    result = bench.pair(f"{common} -s", f"{common} -c")
    rounds = result.b.stdout.count("ping data: ")
    assert rounds == count, f"{rounds} rounds of {count}:\n{result.b.stdout}"
    return {"rounds": rounds}


def perftest(bench, program, size, options="", count=1000):
    """A program of perftest; returns its row as column: number."""
    common = (f"{program} -d {{dev}} -x {{gid}} -F -s {size} -n {count} "
              f"{options}")
    return perftest_row(bench.pair(common, f"{common} {{a}}").b.stdout)


def perftest_row(text):
    """The columns of the last row of a perftest report."""
    header = re.search(r"^\s*#bytes.*$", text, re.MULTILINE)
    assert header, f"no report in:\n{text}"
    # Two columns of "BW peak[MiB/sec]" have a blank in their names.
    names = re.sub(r"BW (\w+)\[", r"BW_\1[", header[0])
    names = re.sub(r"99(\.9)?% percentile\[", r"99\1%[", names)
    rows = [line.split() for line in text[header.end():].splitlines()
            if re.match(r"\s*\d+\s+\d+\s+[\d.]+", line)]
    assert rows, f"no figures in:\n{text}"
    return dict(zip(names.split(), map(float, rows[-1])))


def bandwidth(bench, program, size=65536, options="", count=1000):
    if program != "ib_write_bw":
        options += f" {EVENTS}"
    row = perftest(bench, program, size, options, count)
    return {"MiB/s": row["BW_average[MiB/sec]"]}


def latency(bench, program, size=8, options="", count=1000):
    row = perftest(bench, program, size, options, count)
    return {"us typical": row["t_typical[usec]"]}


def xfer(bench, op, size="64M", message="1M"):
    """vroce_xfer: checksums of both sides' memory are compared."""
    common = (f"/artifacts/vroce_xfer -d {{dev}} -g {{gid}} -o {op} "
              f"-s {size} -m {message}")
    result = bench.pair(common, f"{common} {{a}}")
    match = re.search(rf"^{op} .* ([\d.]+) MiB/s, checksum here (\w+) there "
                      r"(\w+) match$", result.b.stdout, re.MULTILINE)
    assert match and match[2] == match[3], result.b.stdout
    return {"MiB/s": float(match[1]), "checksum": match[2]}
