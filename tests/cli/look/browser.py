"""A Chromium for tests, through browser.mjs. What that needs of npm is installed once, in FENCEGUARD_NODE_FOLDER."""

import json
import os
import pathlib
import shutil
import subprocess

import support

HERE = pathlib.Path(__file__).resolve().parent
PACKAGES = pathlib.Path(os.environ.get("FENCEGUARD_NODE_FOLDER", "."))


def install():
    support.install_packages(HERE, PACKAGES)
    shutil.copy(HERE / "browser.mjs", PACKAGES)


class Browser:
    """One window. downloads: where files go that the page saves."""

    def __init__(self, downloads):
        home = os.path.join(downloads, "home")
        os.mkdir(home)
        self._process = subprocess.Popen(["node", PACKAGES / "browser.mjs", shutil.which("chromium"), downloads], text=True,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         env={**os.environ, "HOME": home, "XDG_CONFIG_HOME": home, "XDG_CACHE_HOME": home})

    def close(self):
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def _do(self, **task):
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer = json.loads(line or '{"error": "the browser ended"}')
        if "error" in answer:
            raise AssertionError(f"{task}: {answer['error']}")
        return answer["value"]

    def open(self, url, dark=False, width=1280, height=900):
        """Its status; null where only what is behind the # changes."""
        return self._do(open=url, dark=dark, width=width, height=height)

    def eval(self, script):
        return self._do(eval=script)

    def wait(self, script):
        """Waits until the expression is true, and answers it."""
        return self._do(wait=script)

    def wait_text(self, selector, text):
        return self.wait(f"document.querySelector({json.dumps(selector)})?.innerText.includes({json.dumps(text)})")

    def click(self, selector):
        self._do(click=selector)

    def type(self, selector, text):
        self._do(type=selector, text=text)

    def press(self, key):
        self._do(press=key)

    def shot(self, path):
        self._do(shot=path)

    def axe(self):
        """What axe-core finds: id, impact and places of each."""
        return self._do(axe=True)

    def errors(self):
        """What the page wrote to the console as errors, and threw, since the last time."""
        return self._do(errors=True)
