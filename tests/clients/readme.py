"""The snippets of a client's README, as programs that a test runs."""

import pathlib
import re

CLIENTS = pathlib.Path(__file__).resolve().parents[2] / "clients"
DEFAULT_DATA, DEFAULT_CONTROL = "http://127.0.0.1:7420", "http://127.0.0.1:7421"


def snippets(client, language):
    """The texts of its blocks in a language, in their order."""
    text = (CLIENTS / client / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def led_to(server, snippet):
    """The snippet at the ports of a server instead of the default ones, both of which it must name."""
    assert DEFAULT_DATA in snippet and DEFAULT_CONTROL in snippet, snippet
    return snippet.replace(DEFAULT_DATA, f"http://{server.data}").replace(DEFAULT_CONTROL, f"http://{server.control}")
