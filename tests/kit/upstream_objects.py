"""The objects of the tests' upstream: what WebDAV's methods do to a dict. Pure."""

import re

# What a body leaves behind: its bytes, or its length alone where it was only counted.
KEPT_BYTES_MAX = 64 * 1024 * 1024
READS = ("GET", "HEAD", "PROPFIND", "OPTIONS")
# Byte n of a body that was only counted is n modulo this, so that what is lost or moved shows.
PERIOD = 251
_PATTERN = bytearray()


def pattern(first, last):
    """The bytes from first to last, inclusive, of a body that was only counted."""
    start, size = first % PERIOD, last + 1 - first
    if len(_PATTERN) < start + size:
        _PATTERN.extend(bytes(range(PERIOD)) * ((start + size - len(_PATTERN)) // PERIOD + 1))
    return bytes(memoryview(_PATTERN)[start:start + size])


class Content:
    """A body: data, or only its size. crc tells whether it came whole."""

    def __init__(self, data=b"", size=None, crc=0):
        self.data = data
        self.size = len(data) if size is None else size
        self.crc = crc

    def part(self, first, last):
        """The bytes from first to last, inclusive; a pattern where the body was only counted."""
        if self.size == len(self.data):
            return self.data[first:last + 1]
        return pattern(first, last)


class Answer:
    """status, fields, and what is sent: content from first to last."""

    def __init__(self, status, content=None, fields=None, span=None):
        self.status = status
        self.content = content or Content()
        self.fields = dict(fields or {})
        self.first, self.last = span or (0, self.content.size - 1)

    @property
    def size(self):
        return self.last + 1 - self.first


class Objects:
    """apply() does what a request asks, and answers. took_effect tells the writes that changed something."""

    def __init__(self):
        self._objects = {}
        self._collections = {"/"}

    def apply(self, head, content):
        action = getattr(self, "_" + head.method.lower(), None)
        return action(head, head.target.partition("?")[0], content) if action else Answer(501)

    @staticmethod
    def took_effect(method, status):
        return method not in READS and 200 <= status < 300

    def _get(self, head, path, _):
        if path not in self._objects:
            return Answer(404)
        content, kind = self._objects[path]
        fields = {"ETag": f'"{content.crc:08x}-{content.size}"', "Content-Type": kind, "Accept-Ranges": "bytes"}
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", head.fields.get("range", ""))
        if not wanted or wanted.groups() == ("", ""):
            return Answer(200, content, fields)
        first, last = wanted.groups()
        if first == "":
            first, last = max(0, content.size - int(last)), content.size - 1
        else:
            first, last = int(first), min(int(last or content.size), content.size - 1)
        if first > last:
            return Answer(416, fields={"Content-Range": f"bytes */{content.size}"})
        fields["Content-Range"] = f"bytes {first}-{last}/{content.size}"
        return Answer(206, content, fields, (first, last))

    _head = _get

    def _put(self, head, path, content):
        status = 204 if path in self._objects else 201
        self._objects[path] = (content, head.fields.get("content-type", "application/octet-stream"))
        return Answer(status)

    def _post(self, head, path, content):
        old, kind = self._objects.get(path, (Content(), head.fields.get("content-type", "text/plain")))
        self._objects[path] = (Content(old.data + content.data, old.size + content.size, content.crc), kind)
        return Answer(200, Content(b"added\n"), {"Content-Type": "text/plain"})

    _patch = _post

    def _delete(self, _, path, __):
        below = [key for key in self._objects if key == path or key.startswith(path.rstrip("/") + "/")]
        for key in below:
            del self._objects[key]
        was_collection = path.rstrip("/") in self._collections
        self._collections.discard(path.rstrip("/"))
        return Answer(204 if below or was_collection else 404)

    def _copy(self, head, path, _):
        target = head.fields.get("destination")
        if target is None:
            return Answer(400)
        target = re.sub(r"^https?://[^/]*", "", target)
        if path not in self._objects:
            return Answer(404)
        if target in self._objects and head.fields.get("overwrite") == "F":
            return Answer(412)
        status = 204 if target in self._objects else 201
        self._objects[target] = self._objects[path]
        return Answer(status)

    def _move(self, head, path, content):
        answer = self._copy(head, path, content)
        if 200 <= answer.status < 300:
            del self._objects[path]
        return answer

    def _mkcol(self, _, path, __):
        if path.rstrip("/") in self._collections:
            return Answer(405)
        self._collections.add(path.rstrip("/"))
        return Answer(201)

    def _propfind(self, _, path, __):
        found = [key for key in self._objects if key == path or key.startswith(path.rstrip("/") + "/")]
        if not found and path.rstrip("/") not in self._collections:
            return Answer(404)
        lines = "".join(f"<D:response><D:href>{key}</D:href></D:response>" for key in sorted(found))
        text = f'<?xml version="1.0"?><D:multistatus xmlns:D="DAV:">{lines}</D:multistatus>'
        return Answer(207, Content(text.encode()), {"Content-Type": "application/xml"})

    def _options(self, _, __, ___):
        return Answer(200, fields={"Allow": "OPTIONS, GET, HEAD, PUT, POST, PATCH, DELETE, MOVE, COPY, MKCOL, PROPFIND",
                                   "DAV": "1"})
