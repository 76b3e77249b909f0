"""A driver of a client as a child process: commands in, answers out, one JSON object a line."""

import json
import os
import queue
import signal
import subprocess
import threading

from support import environment
from waiting import LIMIT_S, wait_until

ANSWER_MAX_S = 90


class Driver:
    def __init__(self, name, command, folder, variables=None):
        self.name = name
        self._errors_path = os.path.join(folder, f"driver-{name}.log")
        with open(self._errors_path, "wb") as errors:
            self.process = subprocess.Popen(command, cwd=folder, env=environment(variables), stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=errors)
        self._lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def send(self, command):
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()

    def receive(self):
        """The next line, an answer or an event."""
        try:
            line = self._lines.get(timeout=ANSWER_MAX_S)
        except queue.Empty:
            raise AssertionError(f"driver {self.name} gave no answer within {ANSWER_MAX_S} s") from None
        if line is None:
            raise AssertionError(f"driver {self.name} ended: {self.errors()}")
        return json.loads(line)

    def call(self, command):
        self.send(command)
        return self.receive()

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)
        wait_until(self._is_stopped, what=f"a stop of driver {self.name}")

    def _is_stopped(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "T"

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def errors(self):
        with open(self._errors_path, encoding="utf-8", errors="replace") as log:
            return log.read()[-4000:]

    def close(self):
        """Ends it by the end of its input, and answers its status."""
        self.resume()
        self.process.stdin.close()
        return self.process.wait(LIMIT_S)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
