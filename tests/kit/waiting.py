"""Waiting for a condition, with a limit, and for each other: nothing in the tests sleeps for luck."""

import threading
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


def run_all(bodies):
    """Runs the functions side by side. Fails with what they raised."""
    errors = []

    def guarded(body):
        try:
            body()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise AssertionError(f"{len(errors)} of {len(threads)} failed: {errors!r}") from errors[0]
