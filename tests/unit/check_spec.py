#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Does docs/device.md say what vroce_hw.h defines? Prints TAP."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER = (ROOT / "qemu-device/vroce_hw.h").read_text()
SPEC = (ROOT / "docs/device.md").read_text()


def enum(name):
    """The enumerators of an enum of the header, as {name: value}."""
    body = re.search(r"enum %s \{(.*?)\n\};" % name, HEADER, re.S)[1]
    return {m[1]: int(m[2], 0)
            for m in re.finditer(r"(VROCE_\w+)\s*=\s*(0x[0-9a-f]+|\d+)", body)}


def macros(prefix):
    """The plain numeric macros whose name begins with prefix."""
    return {m[1]: int(m[2], 0) for m in
            re.finditer(r"#define (%s\w+)\s+(0x[0-9a-f]+|\d+)\b" % prefix, HEADER)}


def rows():
    """Table rows of the specification that give a number and a name."""
    found = {}
    for m in re.finditer(r"^\| (0x[0-9a-f]+|\d+) \| `(VROCE_\w+)` ", SPEC, re.M):
        found[m[2]] = int(m[1], 0)
    return found


def plain_rows(heading):
    """Rows of the table under heading that give WQE opcodes: `4 WRITE, ...`."""
    section = SPEC[SPEC.index(heading):]
    found = {}
    for m in re.finditer(r"^\| ((?:\d+ [A-Z_]+(?:, )?)+) \|", section, re.M):
        for number, name in re.findall(r"(\d+) ([A-Z_]+)", m[1]):
            found["VROCE_WQE_" + name] = int(number)
    return found


def main():
    want = {}
    for name in ("vroce_status", "vroce_opcode", "vroce_db_kind",
                 "vroce_event", "vroce_rule"):
        want[name] = enum(name)
    want["vroce_rule"].pop("VROCE_RULE_NONE")
    want["registers"] = macros("VROCE_REG_")
    spec = rows()
    failed = 0
    number = 0
    for group, names in want.items():
        bad = [f"{n}: header {v:#x}, specification {spec.get(n)}"
               for n, v in names.items() if spec.get(n) != v]
        number += 1
        failed += bool(bad)
        print(f"{'not ok' if bad else 'ok'} {number} {group}: {len(names)} names")
        for line in bad:
            print("#", line)

    known = {n: v for names in want.values() for n, v in names.items()}
    stale = sorted(set(spec) - set(known))
    number += 1
    failed += bool(stale)
    print(f"{'not ok' if stale else 'ok'} {number} nothing that the header lacks")
    for name in stale:
        print("#", name)

    wqe, said = enum("vroce_wqe_opcode"), plain_rows("**Send queue.**")
    number += 1
    failed += wqe != said
    print(f"{'not ok' if wqe != said else 'ok'} {number} send work requests")
    if wqe != said:
        print("#", sorted(set(wqe.items()) ^ set(said.items())))

    sizes = {m[1]: int(m[2]) for m in re.finditer(
        r"VROCE_ASSERT_SIZE\(struct (\w+), (\d+)\)", HEADER)}
    bad = [f"struct {m[1]}: header {sizes.get(m[1])}, specification {m[2]}"
           for m in re.finditer(r"`struct (\w+)`[^|`]{0,3}?[(,] ?(\d+) bytes", SPEC)
           if sizes.get(m[1]) != int(m[2])]
    number += 1
    failed += bool(bad)
    print(f"{'not ok' if bad else 'ok'} {number} sizes of structs")
    for line in bad:
        print("#", line)
    print(f"1..{number}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
