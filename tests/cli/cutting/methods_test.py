"""Fence methods, good ones and bad ones, in front of a real storage.

Shows: what a method does wrong (hangs, prints without end, dies, is no program, answers 500 or nothing) is a failure
with a sentence, in the log and the metrics, and never more; and what cannot work is refused at the start.
"""

import http.server
import json
import os
import ssl
import threading
import unittest
import unittest.mock

import certificates
import lane_test
import server_process
import support
from method import make_script
from waiting import wait_until

GIGABYTE = 1_000_000_000


class Service:
    """An HTTP service that answers each POST with a status, or never, or without end."""

    def __init__(self, status=200, is_silent=False, is_endless=False, shown=None):
        self.calls = []
        self.over = threading.Event()
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                service.calls.append((self.path, self.headers["Content-Type"], json.loads(body)))
                if is_silent:
                    service.over.wait()
                    return
                self.send_response(status)
                self.end_headers()
                try:
                    while is_endless and not service.over.is_set():
                        self.wfile.write(b"x" * 65536)
                except OSError:
                    pass

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        if shown:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*shown)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def word(self, path="/off?node=a", begin="http:http:"):
        return f"{begin}//127.0.0.1:{self.server.server_address[1]}{path}"

    def close(self):
        self.over.set()
        self.server.shutdown()
        self.server.server_close()


def is_over(process):
    try:
        with open(f"/proc/{process}/stat", encoding="ascii") as file:
            return ") Z " in file.read()
    except FileNotFoundError:
        return True


class MethodTest(lane_test.LaneTest):
    def script(self, text):
        return "command:" + make_script(self.path("script"), f"#!/bin/sh\n{text}\n")

    def service(self, **how):
        service = Service(**how)
        self.addCleanup(service.close)
        return service

    def take_over(self, word, **options):
        """A guard whose only method is this one, and what the second holder is told there."""
        server = self.guard("--fence-on-failure", "wait", methods=[word], **options)
        self.assertEqual(self.put(server, 34).status, 201)
        return server, self.put(server, 35).status


class BadCommands(MethodTest):
    def hanging(self):
        return self.script(f"sleep 1000 & echo $! > {self.path('child')}; wait")

    def child(self):
        """What the hanging one started."""
        def number():
            try:
                with open(self.path("child"), encoding="ascii") as file:
                    return int(file.read() or 0)
            except FileNotFoundError:
                return 0
        return wait_until(number, what="the command's own child")

    def test_one_that_hangs_is_killed_with_what_it_started(self):
        server, status = self.take_over(self.hanging(), timeout="5s")
        self.assertEqual((status, self.counted(server, "command", "timeout")), (503, 1))
        self.assertIn("it did not end within 5000 ms, and was killed", server.log())
        wait_until(lambda: is_over(self.child()), what="the end of what it started")
        self.assertEqual(support.descendants(server.process.pid), [])

    def test_hanging_method_ends_with_its_children_and_the_guard(self):
        server = self.guard(methods=[self.hanging()], timeout="1000s")
        self.put(server, 34)
        self.pool.submit(self.put, server, 35)
        child = self.child()
        server.kill()
        wait_until(lambda: is_over(child), what="the end of what it started")

    def test_method_signalling_its_own_group_kills_nothing_else(self):
        server, status = self.take_over(self.script("trap '' TERM; kill -TERM 0; exit 0"))
        self.assertEqual((status, self.counted(server, "command", "success")), (204, 1))

    def test_one_that_prints_a_gigabyte_is_heard_for_a_few_kilobytes(self):
        server, status = self.take_over(self.script(f"head -c {GIGABYTE} /dev/zero | tr '\\0' x; exit 0"))
        self.assertEqual(status, 204)
        self.assertLess(len(server.log()), 8_192)
        self.assertIn("detail=\"xxxx", server.log())
        with open(f"/proc/{server.process.pid}/status", encoding="ascii") as file:
            peak_kb = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
        self.assertLess(peak_kb, GIGABYTE / 1000 / 2)

    def test_one_that_dies_by_a_signal_has_failed(self):
        server, status = self.take_over(self.script("echo about to die; kill -SEGV $$"))
        self.assertEqual((status, self.counted(server, "command", "failure")), (503, 1))
        self.assertIn('detail="it died of signal 11: about to die"', server.log())

    def test_one_that_goes_away_after_the_start_has_failed(self):
        path = make_script(self.path("script"), "#!/bin/sh\n")
        server = self.guard("--fence-on-failure", "wait", methods=[f"command:{path}"])
        self.put(server, 34)
        os.unlink(path)
        self.assertEqual(self.put(server, 35).status, 503)
        self.assertIn("exit status 127", server.log())

    def test_what_it_says_is_one_line_of_the_log(self):
        server, _ = self.take_over(self.script("printf 'a\\nlevel=error \"b\"\\033[2J'"))
        self.assertIn(r'detail="a level=error \"b\" [2J"', server.log())

    def test_its_end_is_seen_where_our_parent_ignored_sigchld(self):
        binary = make_script(self.path("ignoring"), f'#!/bin/sh\nexec env --ignore-signal=CHLD {support.BINARY} "$@"\n')
        with unittest.mock.patch("support.BINARY", binary):
            server, status = self.take_over(self.script("exit 0"), timeout="5s")
        self.assertEqual((status, self.counted(server, "command", "success")), (204, 1))

    def test_method_leaving_a_daemon_does_not_delay_the_takeover(self):
        server, status = self.take_over(self.script("sleep 20 & exit 0"))
        self.assertEqual(status, 204)


class Services(MethodTest):
    def test_one_is_told_the_resource_and_the_tokens_and_no_holder(self):
        service = self.service()
        server, status = self.take_over(service.word())
        self.assertEqual((status, self.counted(server, "http", "success")), (204, 1))
        self.assertEqual(service.calls, [("/off?node=a", "application/json",
                                          {"resource": "r", "old_token": "34", "new_token": "35"})])

    def test_one_that_answers_500_has_failed(self):
        server, status = self.take_over(self.service(status=500).word())
        self.assertEqual((status, self.counted(server, "http", "failure")), (503, 1))
        self.assertIn('detail="status 500"', server.log())

    def test_one_that_is_silent_takes_no_longer_than_its_time(self):
        server, status = self.take_over(self.service(is_silent=True).word(), timeout="500ms")
        self.assertEqual((status, self.counted(server, "http", "timeout")), (503, 1))

    def test_one_whose_answer_has_no_end_is_not_read_to_it(self):
        _, status = self.take_over(self.service(is_endless=True).word())
        self.assertEqual(status, 503)

    def test_a_stop_waits_for_none(self):
        service = self.service(is_silent=True)
        server = self.guard(methods=[service.word()], timeout="1000s")
        self.put(server, 34)
        waiting = self.pool.submit(self.put, server, 35)
        wait_until(lambda: service.calls, what="the method")
        self.assertEqual(server.stop(), 0)
        self.assertEqual(waiting.result().status, 503)
        self.assertIn('outcome=failure resource="r" old_token=34 new_token=35 detail="it was ended, because we stop"',
                      server.log())

    def take_over_under_tls(self, trusted, begin):
        shown = certificates.Certificates(self.folder)
        shown.sign("server")
        service = self.service(shown=(shown.file("server"), shown.key("server")))
        server, status = self.take_over(service.word(begin=begin), env={"SSL_CERT_FILE": shown.file(trusted)})
        return server, status, len(service.calls)

    def test_one_under_tls_is_called(self):
        self.assertEqual(self.take_over_under_tls("ca", "https:")[1:], (204, 1))

    def test_untrusted_tls_method_receives_nothing(self):
        server, *told = self.take_over_under_tls("stranger", "http:https:")
        self.assertEqual(told, [503, 0])
        self.assertIn("certificate verify failed", server.log())

    def test_one_that_is_not_there_has_failed(self):
        nowhere = server_process.Nowhere()
        self.addCleanup(nowhere.close)
        server, status = self.take_over(f"http:http://127.0.0.1:{nowhere.port}/")
        self.assertEqual((status, self.counted(server, "http", "failure")), (503, 1))


class UpstreamReset(MethodTest):
    def test_write_that_delays_the_next_holder_is_reset_and_unknown(self):
        server = self.guard("--upstream-timeout", "60s", methods=["upstream-reset"], settle="1s")
        self.assertEqual(self.put(server, 33).status, 201)
        for is_slow in (False, True):  # on the fast path, and on the other
            token = 35 if is_slow else 34
            seen = len(self.upstream.events("seen"))
            old = self.pool.submit(self.put, server, token, deed="never" + (" interim=1" if is_slow else ""))
            wait_until(lambda: len(self.upstream.events("seen")) > seen, what="the write at the storage")
            wait_until(lambda: self.put(server, token + 1).status in (201, 204), what="an open lane")
            self.assertIn(old.result().status, (502, 504))
        self.assertIn("event=quarantined", server.log())
        self.assertGreaterEqual(self.counted(server, "upstream-reset", "success"), 2)


class Refused(support.BinaryTest):
    def refuse(self, sentence, *words, storage="http://127.0.0.1:1"):
        told = self.run_binary("serve", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--storage", storage,
                               *(["--state", "sqlite:state.db"] if storage.startswith("http") else []), *words)
        self.assertEqual(told.returncode, 2, told.stderr)
        self.assertIn(sentence, told.stderr)
        self.assertFalse(os.path.exists(self.path("state.db")), "nothing was opened")

    def test_what_is_no_method_is_refused_with_those_that_are(self):
        self.refuse("'power-off' is none; there are command:PATH, http:URL", "--fence-method", "power-off")
        self.refuse("'' is none", "--fence-method", ":x")

    def test_a_command_that_cannot_be_run_is_refused(self):
        self.write("plain", "#!/bin/sh\n")
        self.refuse("plain is not executable", "--fence-method", f"command:{self.path('plain')}")
        self.refuse("nowhere does not exist", "--fence-method", "command:nowhere")
        self.refuse("is not a file", "--fence-method", f"command:{self.folder}")
        self.refuse("the path is missing", "--fence-method", "command:")

    def test_a_url_that_is_none_is_refused(self):
        self.refuse("reads http://HOST:PORT/PATH or https://HOST:PORT/PATH", "--fence-method", "http:power/off")
        self.refuse("there is no user in its URL", "--fence-method", "http:http://me:secret@power/off")

    def test_a_method_that_does_not_fit_the_storage_is_refused(self):
        self.refuse("terminate-backends: it is for a postgres: or mariadb: storage", "--fence-method", "terminate-backends")
        self.refuse("kill-client: it is for a redis: storage", "--fence-method", "kill-client:user=a")
        self.refuse("upstream-reset: it is for serve in front of an http: storage", "--fence-method", "upstream-reset",
                    storage="sqlite:data.db")
        self.refuse("serve has it in front of an http: storage alone", "--fence-method", "command:/bin/true",
                    storage="sqlite:data.db")

    def test_settings_that_would_have_no_effect_are_refused(self):
        self.refuse("--fence-on-failure is for a --fence-method", "--fence-on-failure", "wait")
        self.refuse("--fence-timeout is for a --fence-method", "--fence-timeout", "1s")
        self.refuse("--fence-on-failure: wait or continue", "--fence-method", "command:/bin/true", "--fence-on-failure", "x")
        self.refuse("--fence-timeout: at least 10ms", "--fence-method", "command:/bin/true", "--fence-timeout", "1ms")


if __name__ == "__main__":
    unittest.main()
