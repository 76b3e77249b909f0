#!/usr/bin/python3
"""kazoo's Lock in a process of its own, for a test that speaks lines with it.

    kazoo_child.py HOSTS PATH

Reads 'acquire', 'try', 'release' and says 'asking' before it waits and what came of it: 'held CZXID', 'busy',
'released'. Ends with its input.
"""

import logging
import sys

from kazoo.client import KazooClient


def say(line):
    print(line, flush=True)


def main():
    logging.basicConfig(level=logging.CRITICAL)
    client = KazooClient(hosts=sys.argv[1], timeout=10)
    client.start(timeout=60)
    lock = client.Lock(sys.argv[2], "kazoo's own")
    say("ready")
    for line in sys.stdin:
        word = line.strip()
        if word == "release":
            lock.release()
            say("released")
            continue
        if word == "acquire":
            say("asking")
        if lock.acquire(blocking=word == "acquire"):
            stat = client.exists(lock.path + "/" + lock.node)
            say("held %d" % stat.czxid)
        else:
            say("busy")
    client.stop()
    client.close()


main()
