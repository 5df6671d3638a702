#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Does docs/device say what vroce_hw.h defines and what the device does?

    check_spec.py EXAMPLES              prints TAP
    check_spec.py --update EXAMPLES     puts drawings and bytes right in the pages

EXAMPLES is the program built from spec-examples.c.  Every name of the header
has a row with its value in some table, every struct a drawing that is exactly
the compiler's layout with each field explained below it, every example the bytes
that driver and device write; MODIFY_QP requires and allows what its table says;
registers have the access and width that their qtest finds.  Then mistakes are
put into copies of the pages, one at a time, and each must be seen.
"""

import functools
import posixpath
import re
import subprocess
import sys
from typing import NamedTuple

from hw_layout import (HEADER, Hardware, draw_example, draw_struct, draw_word,
                       parse_example)

# Its tables define nothing.
EXAMPLES = "device/sequences.md"
DOCS = HEADER.parents[1] / "docs"
QTEST = HEADER.parents[1] / "tests" / "qtest" / "vroce-register-test.c"
COLUMNS = 120

ROW = re.compile(r"^\| (bit )?(0x[0-9a-f]+|\d+)(?: \+ 4v)? \| `(VROCE_\w+)", re.M)
BLOCK = re.compile(r"^```\n((?:struct |example )?([\w.-]+)[,:].*?)\n```$",
                   re.M | re.S)
SIZE = re.compile(r"`struct (\w+)`[^|`\n]{0,3}?[(,] ?(\d+) bytes")
# A name has its value in one table; that of a register is used elsewhere.
ROW_OF = r"(?m)^\| (?:bit )?\w+(?: \+ 4v)? \| `%s\b"
TRANSITION = re.compile(r"^\|([A-Z ]*)\|([A-Z ]*)\|([A-Z, ]*)\|([A-Z_, ]*)\|"
                        r"([A-Za-z_, ]*)\|$", re.M)
REGISTER = re.compile(r"^\| (0x\w+)(?: \+ 4v)? \| `VROCE_REG_[^|]*\| "
                      r"([A-Z][^|]*) \|", re.M)
TESTED = re.compile(r"^    \{ (0x\w+), (32|64), (RO|RW|WO)\b", re.M)
LINK = re.compile(r"\]\(([^)#:]*)(?:#([^)]*))?\)")


def read_pages():
    """{path from docs/: text} of the specification."""
    paths = [DOCS / "device.md", *sorted((DOCS / "device").glob("*.md"))]
    return {str(path.relative_to(DOCS)): path.read_text() for path in paths}


def tested_registers():
    """{offset: access, as in the pages} of the table of the qtest"""
    return {int(offset, 16): access + ", 64" * (width == "64")
            for offset, width, access in TESTED.findall(QTEST.read_text())}


def expected_blocks(hardware, examples):
    """{name: the drawing or example that belongs in the pages}"""
    blocks = {name: draw_struct(name, struct)
              for name, struct in hardware.structs.items()}
    blocks |= {name: draw_word(name, bits)
               for name, bits in hardware.words.items()}
    blocks |= {example.name: draw_example(hardware, example)
               for example in examples}
    return blocks


# --------------------------------------------------------------- checks

class Page(NamedTuple):
    """What a page says, and what is wrong with it whatever the others say."""
    defined: frozenset      # names with a value
    drawn: tuple            # names of drawings and examples
    links: frozenset        # pairs of a page and an anchor
    anchors: frozenset
    problems: tuple


class Checker:
    def __init__(self, hardware, blocks, program):
        self.hardware, self.blocks, self.program = hardware, blocks, program
        self.registers = tested_registers()
        self.page = functools.cache(self._page)
        self.transitions = functools.cache(self._transitions)

    def problems(self, pages):
        read = {path: self.page(path, text) for path, text in pages.items()}
        found = [problem for page in read.values() for problem in page.problems]
        defined = frozenset().union(*(page.defined for page in read.values()))
        found += [f"names: no table gives the value of {name}"
                  for name in self.hardware.values if name not in defined]
        drawn = [name for page in read.values() for name in page.drawn]
        found += [f"drawings: {name} is there {drawn.count(name)} times"
                  for name in self.blocks if drawn.count(name) != 1]
        for path, page in read.items():
            found += [f"links: {path}: {target}#{anchor} is nowhere"
                      for target, anchor in page.links
                      if not (DOCS / target).exists() or
                      (anchor and anchor not in read[target].anchors)]
        return found

    def _page(self, path, text):
        rows = ROW.findall(text)
        blocks = list(BLOCK.finditer(text))
        folder = posixpath.dirname(path)
        links = frozenset((posixpath.normpath(posixpath.join(folder, target))
                           if target else path, anchor)
                          for target, anchor in LINK.findall(text))
        return Page(frozenset(name for *_, name in rows if path != EXAMPLES),
                    tuple(m[2] for m in blocks), links, anchors(text),
                    (*self._names(path, rows), *self._drawings(path, blocks),
                     *self._fields(path, text, blocks),
                     *self._sizes(path, text), *columns(path, text),
                     *self._registers(path, text),
                     *self.transitions(tuple(TRANSITION.findall(text)))))

    def _names(self, path, rows):
        for bit, number, name in rows:
            value = 1 << int(number) if bit else int(number, 0)
            right = self.hardware.values.get(name, "not in the header")
            if value != right:
                yield f"names: {path}: {name} is {right}, not {bit}{number}"

    def _drawings(self, path, blocks):
        for match in blocks:
            right = self.blocks.get(match[2], "nothing that exists")
            if match[1] != right:
                yield f"drawings: {path}: {match[2]} should be:\n{right}"

    def _fields(self, path, text, blocks):
        """Between the drawing of a struct and the next stands what it holds."""
        drawn = [m for m in blocks if m[2] in self.hardware.structs]
        ends = [m.start() for m in drawn[1:]] + [len(text)]
        for match, end in zip(drawn, ends):
            below = text[match.end():end]
            for field in self.hardware.structs[match[2]].fields:
                if not (field.name.startswith("reserved") or
                        f"`{field.name}`" in below):
                    yield f"fields: {path}: {match[2]}.{field.name} is not " \
                          "explained"

    def _sizes(self, path, text):
        for name, size in SIZE.findall(text):
            struct = self.hardware.structs.get(name)
            if not struct or struct.size != int(size):
                yield f"sizes: {path}: struct {name} has not {size} bytes"

    def _registers(self, path, text):
        for offset, access in REGISTER.findall(text):
            right = self.registers.get(int(offset, 16), "not in the qtest")
            if access != right:
                yield f"registers: {path}: {offset} is {right}, not {access}"

    def _transitions(self, rows):
        """Does the device require and allow what the rows of MODIFY_QP say?"""
        table = self._read_transitions(rows) if rows else {}
        bits = [value for name, value in self.hardware.values.items()
                if name.startswith("VROCE_QP_") and name != "VROCE_QP_STATE"]
        none, attr = (self.hardware.values["VROCE_RULE_" + name]
                      for name in ("NONE", "QP_ATTR"))
        wanted = []     # (type, from, to, mask), the rule
        for key, (required, optional) in table.items():
            wanted += [((*key, required), none),
                       ((*key, required | optional), none)]
            wanted += [((*key, required & ~bit), attr)
                       for bit in bits if required & bit]
            wanted += [((*key, required | bit), attr)
                       for bit in bits if not (required | optional) & bit]
        if rows:
            states = range(self.hardware.values["VROCE_QPS_ERR"])
            types = range(self.hardware.values["VROCE_QPT_ETH"] + 1)
            bad = self.hardware.values["VROCE_RULE_QP_TRANSITION"]
            wanted += [((kind, a, b, 0), bad) for kind in types for a in states
                       for b in states if b and (kind, a, b) not in table]
        answers = subprocess.run(
            [self.program, "transitions"], text=True, check=True,
            input="\n".join(" ".join(map(str, q)) for q, _ in wanted),
            stdout=subprocess.PIPE).stdout.split() if wanted else []
        return [f"transitions: type, from, to, mask {query} breaks rule "
                f"{answer}, not {rule}"
                for (query, rule), answer in zip(wanted, answers)
                if int(answer) != rule]

    def _read_transitions(self, rows):
        """{(type, from, to): [required, optional]}"""
        def value(kind, name):
            return self.hardware.values.get(f"VROCE_{kind}_{name}", 0)
        table, states, keys = {}, (0, 0), []
        for row in rows:
            source, target, kinds, *masks = map(str.strip, row)
            if source:
                states = value("QPS", source), value("QPS", target)
            if kinds:
                keys = [(value("QPT", kind), *states)
                        for kind in kinds.split(", ")]
            for key in keys:
                mask = table.setdefault(key, [0, 0])
                for i, names in enumerate(masks):
                    for name in re.findall("[A-Z_]+", names):
                        mask[i] |= value("QP", name)
        return table


def anchors(text):
    """The anchors of a page's headings, as GitHub and GitLab make them."""
    return frozenset(
        re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", text, re.M))


def columns(path, text):
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > COLUMNS and not line.startswith("|"):    # a table's row
            yield f"columns: {path}:{number}: {len(line)}"


# ------------------------------------------------- the check is checked

def mistakes(hardware, path, text):
    """Yield (what, the page's text with that one mistake)."""
    for m in ROW.finditer(text):
        wrong = str(int(m[2], 0) + 1)
        yield f"value of {m[3]}", text[:m.start(2)] + wrong + text[m.end(2):]
        if path != EXAMPLES and len(re.findall(ROW_OF % m[3], text)) == 1:
            yield f"no {m[3]}", text[:m.start()] + text[m.end():]
    for m in BLOCK.finditer(text):
        # Every seventh digit: offsets, sizes, bytes.
        for digit in list(re.finditer(r"\d", m[1]))[::7]:
            at = m.start(1) + digit.start()
            wrong = str((int(text[at]) + 1) % 10)
            yield f"a digit of {m[2]}", text[:at] + wrong + text[at + 1:]
        yield f"no {m[2]}", text[:m.start()] + text[m.end():]
        fields = hardware.structs[m[2]].fields if m[2] in hardware.structs else ()
        for field in fields:
            if not field.name.startswith("reserved"):
                yield f"no word of {m[2]}.{field.name}", text[:m.end()] + \
                    text[m.end():].replace(f"`{field.name}`", "it")
    for m in TRANSITION.finditer(text):
        yield f"no {m[0]}", text[:m.start()] + text[m.end():]
        yield f"more than {m[0]}", text[:m.end() - 1] + "QKEY, AV |" + \
            text[m.end():]
    for m in REGISTER.finditer(text):
        wrong = "RO" if m[2] != "RO" else "RW"
        yield f"access of {m[1]}", text[:m.start(2)] + wrong + text[m.end(2):]
    for m in SIZE.finditer(text):
        yield f"size of {m[1]}", text[:m.start(2)] + "7" + text[m.end(2):]
    for m in LINK.finditer(text):
        yield f"link {m[0]}", text[:m.end() - 1] + "x" + text[m.end() - 1:]


def unseen(checker, pages):
    """(how many mistakes were tried, those that no check saw)"""
    missed, number = [], 0
    for path, text in pages.items():
        for what, wrong in mistakes(checker.hardware, path, text):
            number += 1
            if wrong == text or not checker.problems({**pages, path: wrong}):
                missed.append(f"{path}: not seen: {what}")
    return number, missed


# ----------------------------------------------------------------- main

def update(blocks, pages):
    for page, text in pages.items():
        right = BLOCK.sub(lambda m: f"```\n{blocks.get(m[2], m[1])}\n```", text)
        if right != text:
            (DOCS / page).write_text(right)


def main(argv):
    output = subprocess.run([argv[-1]], text=True, stdout=subprocess.PIPE,
                            check=True).stdout
    hardware = Hardware()
    blocks = expected_blocks(hardware, map(parse_example, output.splitlines()))
    pages = read_pages()
    if argv[1] == "--update":
        update(blocks, pages)
        return 0
    checker = Checker(hardware, blocks, argv[-1])
    problems = checker.problems(pages)
    number, missed = (0, []) if problems else unseen(checker, pages)
    print(f"{'not ' * bool(problems)}ok 1 {len(hardware.values)} names, "
          f"{len(blocks)} drawings and examples")
    print(f"{'not ' * (bool(missed) or not number)}ok 2 {number} mistakes in "
          "copies of the pages are seen")
    for line in "\n".join(problems + missed).splitlines():
        print("#", line)
    print("1..2")
    return 1 if problems or missed else 0


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    sys.exit(main(sys.argv))
