# SPDX-License-Identifier: GPL-2.0-or-later
"""When the guests of a lab stop and resume together, with QEMU played here."""

import contextlib
import io
import json
import select
import sys
import threading
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from vroce_tool.runstate import RunState  # noqa: E402


class Machine:
    """The other end of a control: QEMU, as far as it matters here."""

    def __init__(self, control):
        self.socket = control.far
        self.status = "running"
        self.commands = []
        self.deaf = False
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def say(self, **message):
        self.socket.sendall(json.dumps(message).encode() + b"\r\n")

    def stop(self, status="paused"):
        if self.status == "running":
            self.status = status
            self.say(event="STOP")

    def resume(self):
        if self.status != "running":
            self.status = "running"
            self.say(event="RESUME")

    def _serve(self):
        self.say(QMP={})
        for line in self.socket.makefile():
            request = json.loads(line)
            command = request["execute"]
            if self.deaf:
                continue
            self.commands.append(command)
            result = {}
            if command == "query-status":
                result = {"status": self.status}
            elif command in ("stop", "cont"):
                self.stop() if command == "stop" else self.resume()
            self.say(**{"return": result, "id": request["id"]})


class Together(unittest.TestCase):
    def setUp(self):
        self.notes = []
        self.runstate = RunState(self.notes.append)
        self.machines = [Machine(self.runstate.add(f"guest{number}"))
                         for number in (1, 2)]

    def tearDown(self):
        for control in list(self.runstate.controls.values()):
            self.runstate.remove(control)
        for machine in self.machines:
            machine.thread.join()
            machine.socket.close()

    def settle(self):
        """Read all that the machines have said."""
        controls = self.runstate.controls.values()
        while ready := select.select(controls, [], [], 0.3)[0]:
            for control in ready:
                self.runstate.read(control)

    def statuses(self):
        return [machine.status for machine in self.machines]

    def test_one_stops_the_other_and_resumes_it(self):
        self.machines[0].stop("debug")
        self.settle()
        self.assertEqual(self.statuses(), ["debug", "paused"])
        self.machines[1].resume()
        self.settle()
        self.assertEqual(self.statuses(), ["running", "running"])
        self.assertEqual(self.notes, [True, False])

    def test_migration_and_snapshots_are_nobody_elses_matter(self):
        for status in ("finish-migrate", "postmigrate", "save-vm"):
            self.machines[0].stop(status)
            self.settle()
            self.assertEqual(self.machines[1].status, "running")
            self.machines[0].resume()
            self.settle()
        self.assertEqual(self.notes, [])

    def test_a_stop_that_is_over_already(self):
        self.machines[0].stop()
        self.machines[0].resume()
        self.settle()
        self.assertEqual(self.statuses(), ["running", "running"])
        self.assertNotIn("stop", self.machines[1].commands)

    def test_asked_for_in_turns(self):
        for _ in range(20):
            self.runstate.set(True)
            self.assertEqual(self.statuses(), ["paused", "paused"])
            self.runstate.set(False)
            self.assertEqual(self.statuses(), ["running", "running"])
        self.settle()
        self.assertEqual(self.statuses(), ["running", "running"])

    def test_a_machine_that_does_not_answer(self):
        self.machines[1].deaf = True
        self.machines[0].stop()
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            self.settle()
        self.assertEqual(errors.getvalue(),
                         "guest2: stop: QEMU does not answer\n")
        self.assertEqual(self.notes, [True])


if __name__ == "__main__":
    unittest.main()
