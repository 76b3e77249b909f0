"""What tests that drive the binary share: folders, processes, servers on free ports, HTTP and raw sockets.

Everything lives in a temporary folder of the test's own, listens on port 0 or on Unix sockets, and is
killed by its process id when the test is over. Nothing sleeps for luck: wait_until() waits for a
condition, with a limit.
"""

import http.client
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import api_description
from server_process import PAGE_PORTS, free_ports
from waiting import LIMIT_S, wait_until

BINARY = os.environ["FENCEGUARD_BINARY"]

# What nohup and background jobs ignore would be ignored by every process that a test starts.
for _number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)


def environment(extra=None):
    """The environment without FENCEGUARD_* and FENCING_*, and with extra."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("FENCEGUARD_",
                                                                                       "FENCING_"))}
    clean.update(extra or {})
    return clean


def is_alive(pid):
    """True if the process exists and is not merely a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def descendants(pid):
    """The process ids below pid."""
    found = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as children:
                for child in children.read().split():
                    found += [int(child)] + descendants(int(child))
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


def processes_with(mark):
    """The living processes whose environment holds mark: a whole tree, wherever its members have moved."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as variables:
                if mark.encode() in variables.read() and is_alive(name):
                    found.append(int(name))
        except OSError:
            pass
    return found


class Response:
    """An HTTP answer: status, headers by name in lower case, body as bytes."""

    def __init__(self, status, headers, body):
        self.status = status
        self.headers = {name.lower(): value for name, value in headers}
        self.body = body

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"{self.status} {self.headers} {self.body[:500]}"


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def connection(address, timeout=LIMIT_S):
    """An http.client connection to HOST:PORT or unix:/path."""
    if address.startswith("unix:"):
        return UnixConnection(address[len("unix:"):], timeout)
    host, _, port = address.rpartition(":")
    return http.client.HTTPConnection(host.strip("[]"), int(port), timeout=timeout)


def request(address, method, target, headers=None, body=None, timeout=LIMIT_S):
    """One request over a connection of its own. A dict as body is sent as JSON."""
    headers = dict(headers or {})
    if isinstance(body, dict):
        body = json.dumps(body)
        headers.setdefault("Content-Type", "application/json")
    link = connection(address, timeout)
    try:
        link.request(method, target, body=body, headers=headers)
        answer = link.getresponse()
        return Response(answer.status, answer.getheaders(), answer.read())
    finally:
        link.close()


class HalfSent:
    """A request whose head was taken, and of whose body nothing was sent yet."""

    def __init__(self, address, method, target, headers, body):
        self._body = body.encode()
        self._link = connection(address, LIMIT_S)
        self._link.putrequest(method, target)
        for name, value in {**headers, "Content-Length": str(len(self._body)), "Expect": "100-continue"}.items():
            self._link.putheader(name, value)
        self._link.endheaders()
        said = self._link.sock.recv(1024)
        if not said.startswith(b"HTTP/1.1 100 "):
            self._link.close()
            raise AssertionError(f"the body was not asked for: {said}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._link.close()

    def finish(self):
        """Sends the body, and answers the answer."""
        self._link.send(self._body)
        answer = self._link.getresponse()
        return Response(answer.status, answer.getheaders(), answer.read())


def raw(address, data, timeout=LIMIT_S):
    """Sends bytes as they are; answers all that comes until the server closes or is silent for timeout."""
    if address.startswith("unix:"):
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.connect(address[len("unix:"):])
    else:
        host, _, port = address.rpartition(":")
        link = socket.create_connection((host.strip("[]"), int(port)))
    with link:
        link.settimeout(timeout)
        link.sendall(data)
        received = b""
        try:
            while chunk := link.recv(65536):
                received += chunk
        except (socket.timeout, ConnectionResetError):
            pass
        return received


class Server:
    """A running 'fenceguard serve'. Its log is in self.log_path."""

    def __init__(self, folder, arguments, extra_environment=None, listen=True):
        self.log_path = os.path.join(folder, f"serve-{time.monotonic_ns()}.log")
        if listen:
            data = [] if "--listen" in arguments else ["--listen", "127.0.0.1:0"]
            arguments = [*data, "--control", "127.0.0.1:0", *arguments]
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen([BINARY, "serve", *arguments], cwd=folder, stdout=subprocess.PIPE,
                                            stdin=subprocess.DEVNULL, stderr=log,
                                            env=environment(extra_environment))
        line = self.process.stdout.readline().decode()
        if not line.startswith("listening data="):
            self.kill()
            raise AssertionError(f"serve said {line!r} and {self.log()!r}")
        words = dict(word.split("=", 1) for word in line.split()[1:])
        self.line = line
        self.data = words["data"]
        self.control = words["control"]

    @property
    def url(self):
        """What --server takes."""
        return self.control if self.control.startswith("unix:") else f"http://{self.control}"

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            return log.read()

    def request(self, method, target, headers=None, body=None, timeout=LIMIT_S):
        """A request to the data side, whose answer is as docs/openapi.yaml says."""
        answer = request(self.data, method, target, headers, body, timeout)
        api_description.check("data", method, target, answer)
        return answer

    def call(self, method, target, headers=None, body=None, timeout=LIMIT_S):
        """A request to the control side, likewise."""
        answer = request(self.control, method, target, headers, body, timeout)
        api_description.check("control", method, target, answer)
        return answer

    def half_sent(self, method, target, headers, body, side=None):
        return HalfSent(side or self.data, method, target, headers, body)

    def lease(self, resource, ttl_ms=10_000, wait_ms=0, holder=None):
        body = {"resource": resource, "ttl_ms": ttl_ms, "wait_ms": wait_ms}
        if holder is not None:
            body["holder"] = holder
        return self.call("POST", "/v1/leases", body=body)

    def stop(self, number=signal.SIGTERM, limit_s=LIMIT_S):
        """Ends it and answers its exit status."""
        self.process.send_signal(number)
        return self.wait(limit_s)

    def wait(self, limit_s=LIMIT_S):
        status = self.process.wait(limit_s)
        self.process.stdout.close()
        return status

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.wait()


class Guard:
    """A 'fenceguard serve' whose data port stays the same, however often it is killed. serve(*arguments) answers a Server."""

    def __init__(self, serve):
        self._serve = serve
        self.data = f"127.0.0.1:{free_ports(1)[0]}"
        self.start()

    def start(self):
        self.process = self._serve("--listen", self.data).process

    def address(self):
        return self.data

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        self.process.wait()

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)


def new_lane(folder, state="state.db"):
    """What 'serve' in front of an http: storage of the test's own needs at its first start, and at no later one."""
    return [] if os.path.exists(os.path.join(folder, state)) else ["--init", "--settled"]


class BinaryTest(unittest.TestCase):
    """A test with a temporary folder, which is where every process is started."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="fenceguard-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def write_private(self, name, text):
        path = self.write(name, text)
        os.chmod(path, 0o600)
        return path

    def run_binary(self, *arguments, env=None, limit_s=LIMIT_S):
        """Runs fenceguard to its end; its output is text."""
        return subprocess.run([BINARY, *arguments], cwd=self.folder, env=environment(env),
                              stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=limit_s)

    def expect(self, status, *arguments, env=None, limit_s=LIMIT_S):
        """Runs fenceguard, which must end with this exit status."""
        done = self.run_binary(*arguments, env=env, limit_s=limit_s)
        self.assertEqual(done.returncode, status, f"{arguments}: {done.stdout!r} {done.stderr!r}")
        return done

    def expect_json(self, status, *arguments, env=None):
        return json.loads(self.expect(status, *arguments, "--json", env=env).stdout)

    def make_file(self, *names):
        """Files for sqlite: sources and storages, which clients find and do not create."""
        for name in names:
            self.expect(0, "fence", "init", "--storage", f"sqlite:{name}")

    def start(self, *arguments, env=None, **options):
        """Starts fenceguard in the background; it is killed at the end of the test."""
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
                   "text": True, **options}
        process = subprocess.Popen([BINARY, *arguments], cwd=self.folder, env=environment(env), **options)
        self.addCleanup(end_process, process)
        return process

    def serve(self, *arguments, env=None, listen=True):
        server = Server(self.folder, arguments, env, listen)
        self.addCleanup(server.kill)
        return server

    def serve_here(self, *arguments):
        """A function that starts it, each time at the same addresses, which stay free meanwhile."""
        control, data = (f"127.0.0.1:{port}" for port in free_ports(2))
        return lambda: self.serve(*arguments, "--control", control, "--listen", data, listen=False)


ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROMPT = re.compile(r"^(?:\$|(mydb)=\*?>) ")
MARK = "--end of a block--"
COMMANDS = ("sh", "sql", "redis", "console")
# psql tells errors where it tells answers; of an error of a block of SQL its SQLSTATE alone.
SQL = "psql -XqAt -v VERBOSITY=sqlstate mydb <{} 2>&1\n"
SQL_CONSOLE = "psql -qX -P footer=off -v SHOW_CONTEXT=never mydb <{} 2>&1\n"


def blocks(page, section=None, languages=COMMANDS):
    """(language, text, what it prints or None) of the text of a page, or of one of its sections, in their order."""
    if section is not None:
        page = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    found = BLOCK.findall(page)
    for (language, text), following in zip(found, [*found[1:], None]):
        if language not in languages:
            continue
        printed = following[1] if following and following[0] == "text" else None
        if language == "console":
            lines = text.splitlines(keepends=True)
            printed = "".join(line for line in lines if not PROMPT.match(line)) or None
            language = "sql console" if PROMPT.match(lines[0])[1] else "sh"
            text = "".join(PROMPT.sub("", line) for line in lines if PROMPT.match(line))
        yield language, text, printed


def without_blank_lines(text):
    return "".join(line.rstrip() + "\n" for line in text.splitlines() if line.strip())


def pattern(text):
    return r"\A" + ".*".join(map(re.escape, without_blank_lines(text).split("…"))) + r"\Z"


class PageTest(BinaryTest):
    """Blocks of a page, run in one shell as they stand; what each prints is compared with what the page says, in which …
    stands for anything: in a ```text block behind one of ```sh, ```sql for psql, ```redis for redis-cli or ```python, or in a
    ```console itself. Hosts, ports and other names of a page are exchanged for those of the test."""

    def run_page(self, name, environment_of_page=None, servers=None, section=None, languages=COMMANDS, names=None, before=""):
        """servers: the ports of those that run, by the ports that the page names. names: what stands for what in it.
        before: what the shell does first. A block of ```redis needs REDIS_PORT."""
        ports = {**dict(zip(("7420", "7421"), map(str, free_ports(2, PAGE_PORTS)))), **(servers or {})}
        page = (ROOT / name).read_text(encoding="utf-8")
        self.assertEqual([old for old in names or {} if old not in page], [])
        instead = {**(names or {}), **{f"127.0.0.1:{old}": f"127.0.0.1:{new}" for old, new in ports.items()}}
        page = re.sub("|".join(re.escape(old) + r"(?!\d)" for old in instead), lambda found: instead[found[0]], page)
        steps = list(blocks(page, section, languages))
        self.assertTrue(steps)
        script = before
        for number, (language, text, _) in enumerate(steps):
            file = f"block{number}"
            self.write(file, text)
            script += {"sh": text, "sql": SQL.format(file), "sql console": SQL_CONSOLE.format(file),
                       "redis": f"redis-cli -e -p $REDIS_PORT {shlex.join(text.split())} | grep -x OK\n",
                       "python": f"/usr/bin/python3 {file}\n"}[language] + f"echo '{MARK}'\n"
        variables = environment({"PATH": f"{os.path.dirname(BINARY)}:{os.environ['PATH']}",
                                 "FENCEGUARD_LISTEN": f"127.0.0.1:{ports['7420']}",
                                 "FENCEGUARD_CONTROL": f"127.0.0.1:{ports['7421']}", **(environment_of_page or {})})
        self.write("page.sh", script + "kill $(jobs -p) 2>/dev/null || true\n")
        with open(self.path("out"), "w") as out, open(self.path("errors"), "w") as errors:
            shell = subprocess.Popen(["bash", "-eu", "-o", "pipefail", "page.sh"], cwd=self.folder, env=variables,
                                     stdin=subprocess.DEVNULL, stdout=out, stderr=errors, start_new_session=True)
        self.addCleanup(end_group, shell.pid)
        try:
            shell.wait(10 * LIMIT_S)
        except subprocess.TimeoutExpired:
            end_group(shell.pid)
            shell.wait()
        out, errors = (pathlib.Path(self.path(name)).read_text(encoding="utf-8") for name in ("out", "errors"))
        printed = out.split(MARK + "\n")
        self.assertEqual((shell.returncode, len(printed)), (0, len(steps) + 1), out + errors)
        for (language, text, expected), said in zip(steps, printed):
            if expected is not None:
                self.assertRegex(without_blank_lines(said), re.compile(pattern(expected), re.DOTALL), f"after:\n{text}")
            elif language.startswith("sql"):
                self.assertNotIn("ERROR", said, f"after:\n{text}")


def install_packages(source, folder):
    """npm ci in folder, of source's package.json and lock, unless it was done for this lock before."""
    done, lock = folder / "done-package-lock.json", source / "package-lock.json"
    if done.exists() and done.read_bytes() == lock.read_bytes():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ("package.json", lock.name):
        shutil.copy(source / name, folder)
    subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--cache", folder / "cache"], cwd=folder,
                   stdin=subprocess.DEVNULL, check=True, timeout=600)
    shutil.copy(lock, done)


def end_group(pid):
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def interrupted(start, number, is_time, limit_s=LIMIT_S):
    """The status of a process of start() that got the signal when is_time() said so. One that was faster, and ended
    well, is started again."""
    for _ in range(50):
        process = start()
        wait_until(lambda: process.poll() is not None or is_time(), limit_s, "the time for the signal")
        process.send_signal(number)
        process.communicate(timeout=limit_s)
        if process.returncode != 0:
            return process.returncode
    raise AssertionError("it was always over before it could be interrupted")


def end_process(process):
    if process.poll() is None:
        process.kill()
    process.communicate()


# Of Debian's source packages.
ARCHIVES = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
FETCH_MAX_S = 240


def unpack_source(package, folder):
    """The source of a source package in folder/unpacked: of its newest version that the archives have, which may be older than
    what is installed. What folder held is removed. Raises AssertionError where it cannot be had."""
    try:
        _unpack_source(package, folder)
    except (subprocess.SubprocessError, OSError, ValueError) as error:
        raise AssertionError(f"Debian's source package '{package}' could not be fetched from the archive that apt knows: {error}") from None


def _run_in_time(words, folder, **options):
    return subprocess.run(words, cwd=folder, stdin=subprocess.DEVNULL, check=True, timeout=FETCH_MAX_S, **options)


def _unpack_source(package, folder):
    shutil.rmtree(folder, ignore_errors=True)
    for part in ("lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True)
    archives = _run_in_time(["apt-get", "indextargets", "--format", ARCHIVES, "Created-By: Packages", "Origin: Debian"], folder,
                    capture_output=True, text=True).stdout
    (folder / "sources.list").write_text("".join(f"deb-src {line}\n" for line in sorted(set(archives.splitlines()))))
    places = {"Dir::Etc::SourceList": folder / "sources.list", "Dir::Etc::SourceParts": "-", "Dir::State::Lists": folder / "lists",
              "Dir::Cache": folder / "cache"}
    options = [word for name, place in places.items() for word in ("-o", f"{name}={place}")]
    _run_in_time(["apt-get", "-q", *options, "update"], folder, stdout=sys.stderr)
    known = _run_in_time(["apt-cache", *options, "showsrc", "--only-source", package], folder, capture_output=True, text=True).stdout
    versions = list(dict.fromkeys(re.findall("^Version: (.*)$", known, re.MULTILINE)))  # the newest first
    for version in versions:
        try:
            _run_in_time(["apt-get", "-q", *options, "--download-only", "--tar-only", "source", f"{package}={version}"], folder, stdout=sys.stderr)
            break
        except subprocess.CalledProcessError:  # a mirror may be behind its own lists
            if version == versions[-1]:
                raise
    (archive,) = folder.glob(f"{package}_*.orig.tar.*")
    (folder / "unpacked").mkdir()
    _run_in_time(["tar", "-xf", archive, "--strip-components=1", "-C", folder / "unpacked"], folder)
    for part in ("lists", "cache"):
        shutil.rmtree(folder / part)
