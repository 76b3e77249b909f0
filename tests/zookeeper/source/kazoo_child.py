#!/usr/bin/python3
"""kazoo's Lock in a process of its own, for a test that speaks lines with it.

    kazoo_child.py HOSTS PATH

Reads 'acquire', 'try', 'release' and says 'asking' before it waits and what came of it: 'held CZXID', 'busy',
'released'. Ends with its input.
"""

import logging
import sys

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError


def say(line):
    print(line, flush=True)


def acquire(client, path, blocking):
    """A Lock that was asked for, and whether it is held."""
    while True:
        lock = client.Lock(path, "kazoo's own")
        try:
            return lock, lock.acquire(blocking=blocking)
        except NoNodeError:
            pass  # the ensemble removed the empty container after this Lock had seen it: another makes it again


def main():
    logging.basicConfig(level=logging.CRITICAL)
    client = KazooClient(hosts=sys.argv[1], timeout=10)
    client.start(timeout=60)
    lock = None
    say("ready")
    for line in sys.stdin:
        word = line.strip()
        if word == "release":
            lock.release()
            say("released")
            continue
        if word == "acquire":
            say("asking")
        lock, is_held = acquire(client, sys.argv[2], word == "acquire")
        if is_held:
            stat = client.exists(lock.path + "/" + lock.node)
            say("held %d" % stat.czxid)
        else:
            say("busy")
    client.stop()
    client.close()


main()
