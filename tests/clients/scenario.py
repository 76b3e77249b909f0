"""Runs one scenario of clients/conformance.json; clients/README.md says what each of its words means."""

import re
import time

import places
from driver import Driver

SUCCESS = {"ok", "granted", "renewed", "released", "admitted", "done"}
STEP_WORDS = {"client", "gives", "as", "begin", "end", "event", "send", "within_ms"}
TIMEOUT_MS = 60_000  # of the data side, in a client that was told none


class Scenario:
    """One run. The test case starts what it needs, and ends all of it."""

    def __init__(self, test, data, command, environment=None):
        self._test = test
        self._environment = environment
        self._data = data
        self._answers = {}
        self._faults = []
        self._refusals = 0
        self._guard = places.Guard(test, data.get("server", {}))
        self._drivers = {name: self._start(name, command, wish) for name, wish in data["clients"].items()}

    def _start(self, name, command, wish):
        driver = Driver(name, command, self._test.folder, self._environment)
        self._test.addCleanup(driver.kill)
        where = {side: self._guard.url(side, wish.get(side, "proxy")) for side in places.SIDES}
        more = {word: wish[word] for word in ("bearer", "timeout_ms") if word in wish}
        self._test.assertEqual(driver.call({"do": "client", **where, **more}),
                               {"outcome": "ok", "timeout_ms": more.get("timeout_ms", TIMEOUT_MS)})
        return driver

    def run(self):
        for number, step in enumerate(self._data["steps"]):
            self._where = f"{self._data['name']}, step {number}, {step}"
            self._step(step)
        self._where = self._data["name"]
        self._test.assertTrue(self._faults or self._refusals, "it brought nothing about")
        for what, has_happened in self._faults:
            self._test.assertTrue(has_happened(), f"{self._where}: {what} did not take place")
        self._test.assertEqual({name: driver.close() for name, driver in self._drivers.items()},
                               dict.fromkeys(self._drivers, 0))
        self._test.assertEqual(self._guard.undescribed(), [])

    def _step(self, step):
        for kind in ("fault", "await", "call", "count"):
            if kind in step:
                return getattr(self, "_" + kind)(step)
        return self._client(self._drivers[step["client"]], step)

    # -- commands -------------------------------------------------------------------------------------------------

    def _client(self, driver, step):
        if "event" in step:
            return self._expect({"event": step["event"]}, driver.receive())
        if "send" in step:
            return driver.send(step["send"])
        if "end" not in step:
            driver.send(self._resolve({word: value for word, value in step.items() if word not in STEP_WORDS}))
        if "begin" in step:
            return None
        sent_at = time.monotonic()
        answer = driver.receive()
        if "within_ms" in step:
            self._test.assertLess((time.monotonic() - sent_at) * 1000, step["within_ms"], self._where)
        self._expect(step["gives"], answer)
        self._refusals += answer["outcome"] not in SUCCESS
        self._answers[step.get("as")] = answer
        return None

    def _resolve(self, value):
        """Replaces '$name.member' by what was answered."""
        if isinstance(value, dict):
            return {name: self._resolve(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self._resolve(inner) for inner in value]
        found = re.fullmatch(r"\$(\w+)\.(\w+)", value) if isinstance(value, str) else None
        return self._answers[found[1]][found[2]] if found else value

    def _expect(self, wanted, answer):
        for name, value in self._resolve(wanted).items():
            told = f"{self._where}: '{name}' in {answer}"
            self._test.assertIn(name, answer, told)
            if isinstance(value, dict):
                self._test.assertGreater(int(answer[name]), int(value["above"]), told)
            elif isinstance(value, list):
                self._test.assertIn(answer[name], value, told)
            else:
                self._test.assertEqual(answer[name], value, told)
        for name in {"token", "highest"} & answer.keys():
            self._test.assertRegex(answer[name], r"^[0-9]+$", self._where)

    # -- the guard and its proxies --------------------------------------------------------------------------------

    def _call(self, step):
        answer = self._guard.call(step["call"], step["target"], step.get("body"))
        self._expect(step["gives"], {"status": answer.status})

    def _count(self, step):
        counts = self._guard.proxies[step["side"]].counts
        self._expect({"requests": step["gives"]}, {"requests": counts[step["count"]]})

    def _await(self, step):
        self._guard.proxies[step["side"]].wait_until_kept()

    def _fault(self, step):
        details = {word: value for word, value in step.items() if word not in ("fault", "side", "client")}
        kind = step["fault"]
        if "client" in step:
            driver = self._drivers[step["client"]]
            happened = {"stop": driver.stop, "continue": driver.resume}[kind]
        elif kind in ("clear", "drop-answer"):
            happened = self._guard.proxies[step["side"]].clear
        elif "side" in step:
            fault = self._guard.proxies[step["side"]].arm(kind, **details)
            self._faults.append((kind, lambda: fault.happened))
            return
        else:
            happened = getattr(self._guard, kind.replace("-", "_"))
        result = happened(**details)
        self._faults.append((kind, result if callable(result) else lambda: True))
