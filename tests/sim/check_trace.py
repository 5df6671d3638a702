#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Is a failing run of the simulation readable, and does it replay exactly?

check_trace.py SIM: makes runs fail by a limit that they cannot keep, or by a
fabric on which what they compare at the end differs, and reads what SIM says
of it. Prints TAP.
"""

import os
import re
import shlex
import subprocess
import sys

LIMIT = 400     # us of simulated time, too short for any of these runs
SCENARIOS = ("lossy", "storm", "chaos", "rnr")
# Runs whose outcome is wrong with most seeds, which is seen when they are over.
OUTCOMES = (
    # 8 packets of 1 KiB a message, sent again at 10 Mb/s
    (("no-timer", "--rate", "0.01"), r"lost at packet \d+: \S+ us instead of"),
    # too short for what is lost to be hidden
    (("goodput-5", "--ops", "4", "--mtu", "256"), "of the goodput of"),
    # it does as much as there are packets, and chance is not that of the link
    (("no-timer", "--reorder", "0.3", "--link", "both"), "the links differ"),
)
SEEDS = 12
# Time, nodes, packet, QP, PSN, then what its AETH says and what became of it.
PACKET = re.compile(r"^ +\d+\.\d{3} us  n\d+ > n-?\d+  [A-Z ]+ qp \d+ "
                    r"psn 0x[0-9a-f]{6}( (ack|RNR \d+|NAK \w+|AETH \d+))?"
                    r"(, up to \+\d+( but \d+ at \+\d+)?)?"
                    r"(, (lost|corrupted|twice|late))*$")
FATES = ("lost", "corrupted", "twice", "late")


# A run that fails ends at once, with all its memory: that is no leak.
ENVIRONMENT = {**os.environ, "ASAN_OPTIONS": ":".join(
    filter(None, (os.environ.get("ASAN_OPTIONS"), "detect_leaks=0")))}


def sim(program, *arguments):
    return subprocess.run([program, *arguments], text=True, env=ENVIRONMENT,
                          capture_output=True, timeout=300, check=False)


def check_limit(program, scenario, link):
    result = sim(program, "--scenario", scenario, "--link", link,
                 "--seed", "3", "--limit", str(LIMIT))
    if "reason: not done after 0.400 ms" not in result.stderr:
        return f"it does not say why:\n{result.stderr}"
    return check_failure(program, result)


def check_outcome(program, arguments, reason):
    for seed in range(1, SEEDS + 1):
        result = sim(program, "--link", "wire", "--seed", str(seed),
                     "--scenario", *arguments)
        if re.search(f"^reason: .*{reason}", result.stderr, re.M):
            return check_failure(program, result)
    return f"no seed makes it fail so; the last one said:\n{result.stderr}"


def check_failure(program, result):
    """Why what a failing run says is of no use; None if it is."""
    if result.returncode != 1:
        return f"exit status {result.returncode}, not 1"
    said = result.stderr
    repeat = re.search(r"^repeat: (.*)$", said, re.M)
    if not repeat:
        return f"it does not say how to repeat it:\n{said}"
    command = shlex.split(repeat[1])
    if command[0] != program:
        return f"it was called {program}, not {command[0]}"
    again = sim(*command)
    tail = said.splitlines()
    whole = [line for line in again.stdout.splitlines() if " us  " in line]
    if again.stderr != said:
        return "the command that it names does something else"
    packets = [line for line in whole if " > n" in line]
    wrong = [line for line in packets if not PACKET.match(line)]
    if wrong:
        return f"no packet's line: {wrong[0]!r}"
    if not any(line.endswith(FATES) for line in packets):
        return "the trace shows nothing that the fabric did"
    end = tail[1:tail.index(next(line for line in tail[1:]
                                 if " us  " not in line))]
    if len(end) < 100 or end != whole[-len(end):]:
        return "the last lines are not the end of the trace"
    return None


def check_refusal(program, arguments, message):
    result = sim(program, *arguments)
    if result.returncode != 2 or message not in result.stderr:
        return f"exit status {result.returncode}: {result.stderr}"
    return None


REFUSALS = (
    (("--scenario", "none"), "no scenario is called none; see --list"),
    (("--seed", "-1"), "--seed must be 0 or more"),
    (("--seed", "x"), "Cannot parse integer value"),
    (("--link", "air"), "--link must be wire, ref or both, not air"),
    *(((f"--{name}", value), f"--{name} must be 0 to 1")
      for name in ("loss", "dup", "reorder", "corrupt")
      for value in ("-1", "1.1", "nan")),
    (("--seeds", "0"), "--seeds must be 1 or more"),
    (("--nodes", "0"), "--nodes must be 2 to 250"),
    (("--nodes", "1"), "--nodes must be 2 to 250"),
    (("--qps", "0"), "--qps must be 1 to 1000"),
    (("--qps", "1001"), "--qps must be 1 to 1000"),
    (("--ops", "0"), "--ops must be 1 or more"),
    (("--max-len", "-1"), "--max-len must be 0 or more"),
    (("--queue", "0"), "--queue must be 1 or more"),
    (("--rate", "0"), "--rate must be 0.001 to 100000"),
    (("--reload", "-1"), "--reload must be 0 to 1000000000"),
    (("--blackout", "-1"), "--blackout must be 0 to 1000000000"),
    (("--limit", "0"), "--limit must be 0.001 to 1000000000000"),
    (("--mtu", "0"), "--mtu must be 256, 512, 1024, 2048 or 4096"),
    (("--mtu", "1500"), "--mtu must be 256, 512, 1024, 2048 or 4096"),
    (("--tap",), "--tap needs --scenario"),
    (("clean",), "there is no argument clean; see --help"),
)


def main():
    program = sys.argv[1]
    cases = [(f"{scenario} on {link} fails readably and replays",
              check_limit, (program, scenario, link))
             for scenario in SCENARIOS for link in ("wire", "ref")]
    cases += [(f"{' '.join(arguments)} fails so too", check_outcome,
               (program, arguments, reason))
              for arguments, reason in OUTCOMES]
    cases += [(f"refuses {' '.join(arguments)}", check_refusal,
               (program, arguments, message))
              for arguments, message in REFUSALS]
    print(f"1..{len(cases)}")
    failed = False
    for number, (name, check, arguments) in enumerate(cases, 1):
        problem = check(*arguments)
        if problem:
            failed = True
            print("".join(f"# {line}\n" for line in problem.splitlines()),
                  end="")
        print(f"{'not ' if problem else ''}ok {number} - {name}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
