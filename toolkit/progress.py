"""Progress of long work on standard error: one line that is rewritten on a terminal, sparse lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

T = TypeVar("T")

# A log gains a line at most this often, so that a CI log stays readable.
LOG_INTERVAL_SECONDS = 10.0


def note(message: str) -> None:
    """Say what begins, or what a person must know before it does."""
    print(message, file=sys.stderr, flush=True)


def track(items: Iterable[T], what: str, total: int | None = None) -> Iterator[T]:
    """Yield ``items`` and report how many are done, of how many, and for how long it has run."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    of = f"/{total}" if total is not None else ""
    terminal = sys.stderr.isatty()
    started = last = time.monotonic()
    done = 0
    for item in items:
        yield item
        done += 1
        now = time.monotonic()
        if terminal:
            print(f"\r{what} {done}{of} ({now - started:.0f} s)", end="", file=sys.stderr, flush=True)
        elif now - last >= LOG_INTERVAL_SECONDS:
            last = now
            print(f"{what} {done}{of} ({now - started:.0f} s)", file=sys.stderr, flush=True)
    if terminal and done:
        print(file=sys.stderr)
