"""The page /ui in Chromium: what it shows and how soon, search, revoke, tokens, hostile names, ten thousand fences, and a
guard that goes away. FENCEGUARD_SCREENSHOTS names a folder for pictures of it."""

import base64
import hashlib
import json
import os
import pathlib
import re
import threading
import time
import urllib.parse

import parts
import support
import upstream_server
from browser import Browser, install
from waiting import wait_until

TOKENS = "lease aaaaaaaaaaaaaaaaaaaa\nadmin bbbbbbbbbbbbbbbbbbbb\n"
HOSTILE = ['<img src=x onerror="alert(1)">', "a'b\"c&amp;`d`</script><script>alert(2)</script>", "\u202etxt.exe\u202c",
           "zero\u200bwidth", "%2e%2e?x#y", "ä" * 256, "x" * 512]
SCREENSHOTS = os.environ.get("FENCEGUARD_SCREENSHOTS")
# How long after its time an event is in the document; both clocks are of this machine.
MEASURE = """
window.seen = new Map();
new MutationObserver(() => {
  for (const time of document.querySelectorAll('#timeline time'))
    if (!window.seen.has(time.dateTime)) window.seen.set(time.dateTime, Date.now() - Date.parse(time.dateTime));
}).observe(document.getElementById('timeline'), {childList: true});
"""


def claim(token, holder="h"):
    return {"Fencing-Token": token, "Fencing-Holder": holder}


class PageTest(support.BinaryTest):
    @classmethod
    def setUpClass(cls):
        install()

    def setUp(self):
        super().setUp()
        self.browser = Browser(self.folder)
        self.addCleanup(self.browser.close)

    def start(self, *arguments):
        return self.serve("--storage", "sqlite:guard.db", "--init", *arguments)

    def open(self, server, place="", **options):
        self.browser.open(f"http://{server.control}/ui{place}", **options)

    def open_ready(self, server, place="", **options):
        self.open(server, place, **options)
        self.browser.wait_text("#state", "ready")

    def incident(self, server, resource="accounts/42"):
        """A takes the lock and stops; B takes over; A's write comes late."""
        path = urllib.parse.quote(resource)
        old = server.lease(resource, holder="h", ttl_ms=600_000).json["token"]
        self.assertEqual(server.request("PUT", f"/{path}", claim(old), "100").status // 100, 2)
        server.call("DELETE", f"/v1/leases/{path}", claim(old))
        new = server.lease(resource, holder="h2", ttl_ms=600_000).json["token"]
        self.assertEqual(server.request("PUT", f"/{path}", claim(old), "150").status, 412)
        return old, new

    def assert_no_errors(self):
        self.assertEqual(self.browser.errors(), [])

    def assert_accessible(self, what):
        found = self.browser.axe()
        self.assertEqual([(one["id"], one["nodes"]) for one in found if one["impact"] in ("serious", "critical")], [], what)
        for one in found:
            print(f"axe, {what}: {one['impact']} {one['id']} {one['nodes'][:2]}")

    def shot(self, name):
        if SCREENSHOTS:
            os.makedirs(SCREENSHOTS, exist_ok=True)
            self.browser.shot(os.path.join(SCREENSHOTS, f"{name}.png"))


class Page(PageTest):
    def test_the_policy_lets_it_load_and_run_nothing_else(self):
        server = self.start()
        answer = server.call("GET", "/ui")
        self.assertLess(len(answer.body), 60 * 1024)
        print(f"the page has {len(answer.body)} bytes")
        html = answer.body.decode()
        policy = dict(part.strip().partition(" ")[::2] for part in answer.headers["content-security-policy"].split(";"))
        inside = {kind: re.search(rf"<{kind}>(.*?)</{kind}>", html, re.DOTALL)[1] for kind in ("script", "style")}
        hashes = {kind: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for kind, text in inside.items()}
        self.assertEqual(policy, {"default-src": "'none'", "script-src": f"'sha256-{hashes['script']}'",
                                  "style-src": f"'sha256-{hashes['style']}'", "connect-src": "'self'", "base-uri": "'none'",
                                  "form-action": "'none'", "frame-ancestors": "'none'"})
        self.assertNotRegex(html, r"innerHTML|insertAdjacentHTML|document\.write|https?://(?!www\.w3\.org/2000/svg)")

    def test_it_shows_a_refusal_soon_after_it_happened(self):
        server = self.start()
        self.open_ready(server)
        self.browser.eval(MEASURE)
        for number in range(5):
            self.incident(server, f"r{number}")
            self.browser.wait_text("#timeline", f"r{number}")
        self.browser.wait("document.querySelectorAll('#timeline li').length === 15")
        times = sorted(self.browser.eval("[...window.seen.values()]"))
        print(f"from an event to the document, in ms: {times}")
        self.assertRegex(self.browser.eval("document.querySelector('#timeline li').innerText"),
                         r"refused\s+write with token \d+: stale, highest \d+ — r4\s+from 127.0.0.1")
        self.assertEqual(self.browser.eval("document.querySelector('#verdicts').innerText.includes('stale')"), True)
        self.assert_no_errors()

    def test_views_in_light_dark_and_narrow_have_nothing_serious(self):
        upstream = upstream_server.Server()
        self.addCleanup(upstream.remove)
        server = self.serve("--storage", upstream.url(), "--state", "sqlite:state.db", "--init", "--settled", "--settle",
                            "600s")
        for resource in ("accounts/7", "accounts/42"):
            old, new = self.incident(server, resource)
        for _ in range(5):
            server.request("PUT", "/accounts/42", claim(old), "1")
        self.assertEqual(server.request("PUT", "/accounts/42", {**claim(new, "h2"), "Upstream-Do": "apply-reset"},
                                        "2").status, 502)
        server.request("PUT", "/jobs/nightly", body="1")
        self.open(server)
        self.browser.wait_text("#state", "ready, 1 in quarantine")
        for name, options in (("light", {}), ("dark", {"dark": True}), ("narrow", {"width": 360, "height": 740})):
            for place in ("#/", "#/fences", "#/leases", "#/resource/accounts%2F42"):
                with self.subTest(name=name, place=place):
                    self.browser.open("about:blank")
                    self.open_ready(server, place, **options)
                    ready = {"#/": "document.querySelectorAll('#timeline li').length > 5 && document.querySelector('#quarantine td')",
                             "#/resource/accounts%2F42": "document.querySelector('#story .cross') && document.querySelector('#revoke')"
                             }.get(place, "document.querySelectorAll('#rows td').length > 1")
                    self.browser.wait(f"!!({ready})")
                    self.assert_accessible(f"{name} {place}")
                    self.shot(f"{name}-{re.sub('[^a-z]', '', place) or 'overview'}")
                    is_wider = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
                    self.assertFalse(self.browser.eval(is_wider))
        self.assert_no_errors()

    def test_search_and_pages(self):
        server = self.start()
        for number in range(120):
            server.call("POST", f"/v1/fences/accounts/{number:03}/advance", body={"token": str(number + 1)})
        server.call("POST", "/v1/fences/jobs/nightly/advance", body={"token": "500"})
        self.open_ready(server, "#/fences")
        self.browser.wait_text("#list-says", "Page 1: 50 fences, and there are more.")
        self.browser.click("#next")
        self.browser.wait_text("#list-says", "Page 2")
        self.browser.wait_text("#rows", "accounts/050")
        self.browser.click("#previous")
        self.browser.wait_text("#rows", "accounts/000")
        self.browser.type("#prefix", "jobs/")
        self.browser.wait_text("#list-says", "Page 1: 1 fences.")
        self.browser.wait_text("#rows", "jobs/nightly")
        self.browser.type("#prefix", "nightly")
        self.browser.press("Enter")
        self.browser.wait_text("#resource-facts", "token 500 or higher")
        self.assertEqual(self.browser.eval("location.hash"), "#/resource/jobs%2Fnightly")
        # A search that was typed and not begun yet must not go on there.
        time.sleep(1)
        self.assert_no_errors()

    def test_a_story_is_drawn_and_saved_as_svg(self):
        server = self.start()
        old, new = self.incident(server)
        self.open_ready(server, "#/resource/accounts%2F42")
        self.browser.wait("!!document.querySelector('#story .cross')")
        words = self.browser.eval("document.querySelector('#words').innerText")
        self.assertIn(f"write with token {old}: stale, highest {new}", words)
        self.assertIn(f"token {new} took over", words)
        self.assertIn(f"token {old}: the first grant seen", words)
        self.browser.click("#save")
        path = self.path("story.svg")
        wait_until(lambda: os.path.exists(path) and os.path.getsize(path) > 0)
        with open(path, encoding="utf-8") as file:
            picture = file.read()
        self.assertTrue(picture.startswith("<svg"))
        self.assertIn(f"token {old}", picture)
        self.assertNotIn("var(--", picture)
        self.browser.open(f"file://{path}")
        self.assertEqual(self.browser.eval("document.documentElement.nodeName"), "svg")
        self.shot("story")
        self.assert_no_errors()

    def test_a_revoke_takes_the_name_typed_again(self):
        server = self.start()
        _, new = self.incident(server)
        self.open_ready(server, "#/resource/accounts%2F42")
        self.browser.wait("!!document.querySelector('#revoke')")
        self.browser.click("#revoke")
        self.browser.type("#revoke-again", "accounts/4")
        self.browser.press("Enter")
        self.assertTrue(self.browser.eval("document.querySelector('#revoke-do').disabled"))
        self.assertFalse(server.call("GET", "/v1/fences/accounts/42").json["closed"])
        self.assert_accessible("revoke")
        self.shot("revoke")
        self.browser.type("#revoke-again", "2")
        self.browser.click("#revoke-do")
        self.browser.wait_text("#resource-says", f"Revoked: token {new} is refused from now on; its lease was ended.")
        self.browser.wait_text("#words", "revoked by hand")
        self.assertTrue(server.call("GET", "/v1/fences/accounts/42").json["closed"])
        self.assert_no_errors()


class Tokens(PageTest):
    def give(self, token):
        self.browser.wait("document.querySelector('#token-dialog').open")
        self.browser.eval("document.querySelector('#token').value = ''")
        self.browser.type("#token", token)
        self.browser.press("Enter")

    def test_the_page_asks_for_a_token_and_keeps_it_in_memory(self):
        server = self.start("--control-token-file", self.write_private("tokens", TOKENS))
        self.open(server)
        self.assert_accessible("token")
        self.shot("token")
        self.assert_no_errors()
        self.give("cccccccccccccccccccc")
        self.browser.wait_text("#token-says", "does not know")
        self.give("aaaaaaaaaaaaaaaaaaaa")
        self.browser.wait_text("#state", "ready")
        stored = self.browser.eval("JSON.stringify([localStorage.length, sessionStorage.length, document.cookie, location.href])")
        self.assertEqual(json.loads(stored)[:3], [0, 0, ""])
        self.assertNotIn("aaaaaaaa", stored)
        self.browser.eval("location.hash = '#/resource/a'")
        self.browser.wait_text("#revoke-place", "role admin")
        self.browser.click("#other-token")
        self.give("bbbbbbbbbbbbbbbbbbbb")
        self.browser.wait("!!document.querySelector('#revoke')")

    def test_beyond_loopback_there_is_no_page_without_tokens(self):
        done = self.run_binary("serve", "--storage", "sqlite:guard.db", "--init", "--listen", "127.0.0.1:0",
                               "--control", "0.0.0.0:0")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--control-token-file", done.stderr)


class Hostile(PageTest):
    def test_hostile_names_are_text(self):
        server = self.start()
        for name in HOSTILE:
            self.incident(server, name)
        self.open_ready(server)
        self.browser.wait("document.querySelectorAll('#timeline li').length === 21")
        self.shot("hostile")
        self.assertEqual(self.browser.eval("document.querySelectorAll('img, iframe, body script ~ script').length"), 0)
        text = self.browser.eval("document.body.innerText")
        self.assertNotRegex(text, "[\u202e\u202c\u200b]")
        self.assertIn("‹U+202E›txt.exe‹U+202C›", text)
        for name in HOSTILE:
            with self.subTest(name=name[:40]):
                self.browser.eval(f"location.hash = '#/resource/' + encodeURIComponent({json.dumps(name)})")
                self.browser.wait_text("#resource-facts", "or higher")
                self.browser.wait("!!document.querySelector('#story .cross')")
                self.assertEqual(self.browser.eval("view.resource"), name)
        self.assertFalse(self.browser.eval("document.documentElement.scrollWidth > document.documentElement.clientWidth"))
        self.browser.click("#revoke")
        self.browser.eval(f"document.querySelector('#revoke-again').value = {json.dumps(HOSTILE[-1])}")
        self.browser.type("#revoke-again", "y")
        self.browser.press("Backspace")
        self.browser.click("#revoke-do")
        self.browser.wait_text("#resource-says", "Revoked")
        self.assert_no_errors()

    def test_ten_thousand_fences_and_a_thousand_events_stay_fluid(self):
        server = self.start()
        self.advance_all(server, 10_000)
        self.open_ready(server, "#/")
        self.browser.wait("events.length === 1000")
        self.browser.eval("""
            window.longest = 0;
            let before = performance.now();
            const frame = (now) => { window.longest = Math.max(window.longest, now - before); before = now; requestAnimationFrame(frame); };
            requestAnimationFrame(frame);""")
        self.advance_all(server, 300, "more")
        server.call("POST", "/v1/fences/newest/advance", body={"token": "7"})
        self.browser.wait_text("#timeline", "newest")
        self.browser.eval("location.hash = '#/fences'")
        for page in range(2, 8):
            self.browser.click("#next")
            self.browser.wait_text("#list-says", f"Page {page}:")
        print(f"10,300 fences, 1,000 events: {self.browser.eval('document.querySelectorAll(`*`).length')} elements, "
              f"longest frame {self.browser.eval('Math.round(window.longest)')} ms")
        self.assertLess(self.browser.eval("document.querySelectorAll('*').length"), 3_000)
        self.assert_no_errors()

    @staticmethod
    def advance_all(server, count, prefix="many"):
        def advance(numbers):
            link = support.connection(server.control)
            for number in numbers:
                link.request("POST", f"/v1/fences/{prefix}/{number:05}/advance", json.dumps({"token": "7"}),
                             {"Content-Type": "application/json"})
                link.getresponse().read()
            link.close()
        workers = [threading.Thread(target=advance, args=(range(first, count, 8),)) for first in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


class Away(PageTest):
    def test_a_guard_that_goes_away_is_told_and_found_again(self):
        guard = self.serve_here("--storage", "sqlite:guard.db", "--init")
        server = guard()
        self.incident(server)
        self.open_ready(server)
        self.browser.wait_text("#timeline", "accounts/42")
        self.assert_no_errors()
        server.kill()
        self.browser.wait_text("#link", "The guard has not answered since")
        self.assertIn("no answer", self.browser.eval("document.querySelector('#state').innerText"))
        self.shot("away")
        begun = time.monotonic()
        server = guard()
        self.browser.wait_text("#state", "ready")
        print(f"found again {time.monotonic() - begun:.1f} s after the guard was started")
        self.browser.wait_text("#timeline", "The guard was started anew")
        self.incident(server, "after")
        self.browser.wait_text("#timeline", "after")
        self.assertTrue(self.browser.eval("document.querySelector('#link').hidden"))
        self.assertEqual([text for text in self.browser.errors() if "net::ERR_" not in text], [])


class Recorded(PageTest):
    """The same page, of a demonstration: a file that asks no guard."""

    def test_both_runs_are_shown_in_light_dark_and_narrow(self):
        self.expect(0, "demo", "--timeline", "story.html")
        file = pathlib.Path(self.folder, "story.html").as_uri()
        for look, options in (("light", {}), ("dark", {"dark": True}), ("narrow", {"width": 360, "height": 740})):
            with self.subTest(look=look):
                self.browser.open(file, **options)
                self.browser.wait("document.querySelectorAll('.run svg').length === 2")
                text = self.browser.eval("document.getElementById('main').innerText")
                for part in ("fenceguard demo: gc-pause", "1. Round the guard", "is LOST", "2. Through the guard", "both updates survive"):
                    self.assertIn(part, text)
                pictures = self.browser.eval("[...document.querySelectorAll('.run svg')].map((one) => one.textContent)")
                self.assertNotIn("REFUSED as stale", pictures[0])
                self.assertIn("REFUSED as stale", pictures[1])
                self.assertTrue(self.browser.eval("[...document.querySelectorAll('.run svg')].every((one) => "
                                                  "one.getBoundingClientRect().height > 300)"))
                self.assertTrue(self.browser.eval("document.documentElement.scrollWidth <= innerWidth"))
                self.browser.click("#through summary")
                self.assertIn("REFUSED as stale", self.browser.eval("document.querySelector('#through ol').innerText"))
                self.assert_accessible(f"recorded {look}")
                self.shot(f"recorded-{look}")
        self.assertEqual(self.browser.eval("performance.getEntriesByType('resource').length"), 0)
        self.browser.open(file + "#through", width=1920, height=1080)
        self.assertEqual(self.browser.wait("getComputedStyle(document.getElementById('through')).position"), "fixed")
        self.shot("recorded-slide")
        self.assert_no_errors()


if __name__ == "__main__":
    parts.main()
