"""Waiting for a condition, with a limit: nothing in the tests sleeps for luck."""

import time

LIMIT_S = 30


def wait_until(condition, limit_s=LIMIT_S, what="the condition"):
    """The first truthy answer of condition(). Fails after limit_s."""
    deadline = time.monotonic() + limit_s
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come true within {limit_s} s")
        time.sleep(0.01)


def moment(randomness, most_s=0.03):
    """A moment that is any moment of what goes on; nothing depends on its length."""
    time.sleep(randomness.random() * most_s)
