# SPDX-License-Identifier: GPL-2.0-or-later
"""What vroce_hw.h defines, as the compiler lays it out, and drawings of it."""

import os
import re
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

HEADER = Path(__file__).resolve().parents[2] / "qemu-device" / "vroce_hw.h"

CELL = 12       # columns of a byte in a drawing
ROW = 8         # bytes in a row of a drawing


class Field(NamedTuple):
    name: str
    type: str       # as in the header, without "struct"
    offset: int
    size: int


class Struct(NamedTuple):
    size: int
    fields: list


class Bits(NamedTuple):
    name: str
    high: int
    low: int


class Hardware:
    """Names with their values, structs with their fields, words of bits."""

    def __init__(self, text=None):
        text = HEADER.read_text() if text is None else text
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
        names, structs = _names(text), _structs(text)
        self.values, self.structs = _compile(text, names, structs)
        self.words = {"doorbell": self._doorbell(), "page_entry": self._entry()}

    def _doorbell(self):
        kind = self.values["VROCE_DB_KIND_SHIFT"]
        number = self.values["VROCE_DB_NUMBER_SHIFT"]
        mask = self.values["VROCE_DB_NUMBER_MASK"]
        return [Bits("kind", 63, kind),
                Bits("number", number + mask.bit_length() - 1, number),
                Bits("index", number - 1, 0)]

    def _entry(self):
        flags = {name: self.values["VROCE_PTE_" + name].bit_length() - 1
                 for name in ("VALID", "WRITE")}
        low = (~self.values["VROCE_PTE_ADDR_MASK"] & (1 << 64) - 1).bit_length()
        top = max(flags.values())
        return [Bits(f"bus address >> {low}", 63, low), Bits("0", low - 1, top + 1),
                *(Bits(name, bit, bit) for name, bit in
                  sorted(flags.items(), key=lambda flag: -flag[1]))]

    def leaves(self, struct, prefix="", base=0):
        """The fields of a struct with those of the structs inside it."""
        for field in self.structs[struct].fields:
            if field.type in self.structs:
                yield from self.leaves(field.type, f"{prefix}{field.name}.",
                                       base + field.offset)
            else:
                yield field._replace(name=prefix + field.name,
                                     offset=base + field.offset)


def _names(text):
    names = re.findall(r"^#define (VROCE_\w+)(?:\(v\))?[ \t]+\S", text, re.M)
    for body in re.findall(r"^enum \w+ \{(.*?)^\};", text, re.M | re.S):
        names += re.findall(r"^\s*(VROCE_\w+)", body, re.M)
    return names


def _structs(text):
    return {name: re.findall(r"^\s*(?:struct )?(\w+) (\w+)(?:\[\w+\])?;",
                             body, re.M)
            for name, body in re.findall(r"^struct (\w+) \{(.*?)^\};", text,
                                         re.M | re.S)}


def _compile(text, names, structs):
    """Ask the compiler ($CC, else cc) for values, offsets and sizes."""
    lines = []
    for name in names:
        use = name + "(0)" if f"{name}(v)" in text else name
        lines.append(f'printf("%llu\\n", (unsigned long long)({use}));')
    for name, fields in structs.items():
        lines.append(f'printf("%zu\\n", sizeof(struct {name}));')
        for _, field in fields:
            lines.append(f'printf("%zu\\n%zu\\n", offsetof(struct {name}, '
                         f'{field}), sizeof(((struct {name} *)0)->{field}));')
    program = "\n".join(["#include <stddef.h>", "#include <stdio.h>", text,
                         "int main(void)", "{", *lines, "return 0;", "}", ""])
    with tempfile.TemporaryDirectory() as folder:
        exe = Path(folder) / "layout"
        subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-x", "c",
                        "-", "-o", exe], input=program, text=True, check=True)
        out = subprocess.run([exe], text=True, stdout=subprocess.PIPE,
                             check=True).stdout
    answers = iter(map(int, out.split()))
    values = {name: next(answers) for name in names}
    return values, {
        name: Struct(next(answers), [Field(field, kind, next(answers),
                                           next(answers))
                                     for kind, field in fields])
        for name, fields in structs.items()}


# ------------------------------------------------------------- drawings

def _wrap(name, width):
    """name in lines of at most width columns, cut after underscores."""
    lines = [""]
    for part in re.findall(r"[^_]*_|[^_]+", name):
        if len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return lines


def _label(field):
    if field.name.startswith("reserved"):
        return "reserved"
    return field.name if field.type.startswith("__") else \
        f"{field.name}: struct {field.type}"


def _edge(row, below):
    """The line under a row, open where a field goes on in the one below."""
    line = ""
    for i, field in enumerate(row):
        goes_on = i < len(below) and field is below[i]
        line += "+" + (" " if goes_on else "-") * (CELL - 1)
    return " " * 6 + line + "+"


def draw_struct(name, struct):
    """Eight bytes a row, the lowest address at the left."""
    at = [next(f for f in struct.fields if f.offset <= i < f.offset + f.size)
          for i in range(struct.size)]
    rows = [at[i:i + ROW] for i in range(0, struct.size, ROW)]
    lines = [f"struct {name}, {struct.size} bytes",
             " " * 6 + "".join(f" +{i}".ljust(CELL) for i in range(ROW)).rstrip(),
             _edge(at[:ROW], [])]
    for number, row in enumerate(rows):
        if 0 < number < len(rows) - 1 and len(set(sum(rows[number - 1:number + 2],
                                                      []))) == 1:
            if lines[-1][6] != ":":
                lines.append(" " * 6 + ":" + " " * (CELL * ROW - 1) + ":")
            continue
        cells = []      # [field, bytes, is its beginning]
        for i, field in enumerate(row):
            if cells and cells[-1][0] is field:
                cells[-1][1] += 1
            else:
                cells.append([field, 1, field.offset == number * ROW + i])
        texts = [_wrap(_label(field), n * CELL - 2) if begins else [""]
                 for field, n, begins in cells]
        for k in range(max(map(len, texts))):
            line = "|".join((" " + (t[k] if k < len(t) else "")).ljust(n * CELL - 1)
                            for t, (_, n, _) in zip(texts, cells))
            tail = " " * CELL * (ROW - len(row))
            start = f"0x{number * ROW:02x}  " if k == 0 else " " * 6
            lines.append(f"{start}|{line}|{tail}".rstrip())
        below = rows[number + 1] if number + 1 < len(rows) else []
        if len(set(row + below)) > 1 or not below:
            lines.append(_edge(row, below))
    return "\n".join(lines)


def draw_word(name, bits):
    """One word, bit 63 at the left."""
    top, middle = "", ""
    for field in bits:
        ends = [str(field.high)] + [str(field.low)] * (field.high != field.low)
        width = max(len(field.name) + 2, len("  ".join(ends)) + 2,
                    (field.high - field.low + 1) * 3 // 2)
        inner = ends[0] + (ends[1].rjust(width - 2 - len(ends[0]))
                           if len(ends) > 1 else "")
        top += " " + f" {inner}".ljust(width)
        middle += "|" + f" {field.name}".ljust(width)
    edge = re.sub(r"[^|]", "-", middle + "|").replace("|", "+")
    return "\n".join([f"{name}, {bits[0].high + 1} bits", top.rstrip(), edge,
                      middle + "|", edge])


# ------------------------------------------------------------- examples

class Example(NamedTuple):
    """Bytes that a driver or the device writes: see spec-examples.c."""
    name: str
    types: list
    address: int
    data: bytes


def parse_example(line):
    name, types, address, data = line.split()
    return Example(name, types.split(","), int(address, 16),
                   bytes.fromhex(data))


def _value(field, data):
    if field.type == "__u8" and field.size > 1:
        return data.hex(":")
    order = "big" if field.type == "__be32" else "little"
    return f"{int.from_bytes(data, order):#x}"


def _annotated(hardware, example):
    """Pairs of an offset and what is there, where it is not zero."""
    base = 0
    for kind in example.types:
        if kind in hardware.words:
            word = int.from_bytes(example.data[base:base + 8], "little")
            for bits in hardware.words[kind]:
                value = word >> bits.low & (2 << bits.high - bits.low) - 1
                if value:
                    yield base, f"{bits.name} {value:#x}"
            base += 8
        elif kind in hardware.structs:
            for field in hardware.leaves(kind):
                data = example.data[base + field.offset:][:field.size]
                if any(data):
                    yield base + field.offset, f"{field.name} {_value(field, data)}"
            base += hardware.structs[kind].size
        else:
            base = len(example.data)    # "bytes": nothing is known of them


def draw_example(hardware, example):
    """Eight bytes a row, and the names of those that are not zero."""
    kinds = [f"struct {kind}" if kind in hardware.structs else kind
             for kind in example.types]
    where = f", at {example.address:#x}" if example.address else ""
    lines = [f"example {example.name}: {', '.join(kinds)}{where}"]
    notes = list(_annotated(hardware, example))
    size = 16 if example.types == ["bytes"] else ROW
    start = 0
    while start < len(example.data):
        zeros = len(example.data[start:]) - len(example.data[start:].lstrip(b"\0"))
        zeros -= zeros % size
        if zeros > size:
            lines.append(f"0x{start:02x}  00 … 00: {zeros:#x} bytes")
            start += zeros
            continue
        row = example.data[start:start + size]
        said = ", ".join(text for offset, text in notes
                         if start <= offset < start + size)
        lines.append(f"0x{start:02x}  {row.hex(' '):{size * 3}} {said}".rstrip())
        start += size
    return "\n".join(lines)
