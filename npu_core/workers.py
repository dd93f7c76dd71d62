"""Independent parts of one computation on several Python threads, with one OpenMP thread each.

A sum in blocks of 16 is hundreds of small products. Cut each of them over all cores, as PyTorch
does, and they spend their time waiting for each other: two cores were slower than one. Here a core
takes a part of the result and makes all its products, and tiny sums stay on one.

The threads wait in a queue: they end with the process, and work until its last exit handler, which
an executor of the standard library does not. They are no `threading.Thread`: those a dump follows,
and our parts of an op are no ops of the user's.
"""

from __future__ import annotations

import _thread
import os
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TypeVar

import torch

T = TypeVar("T")

_jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
_started = 0


def each(work: Callable[[T], None], parts: Sequence[T]) -> None:
    """Call `work` on every part, in no order. Raises what a call raised, after all have ended."""
    before = torch.get_num_threads()  # of this thread: OpenMP counts for each
    if before == 1 or not torch.backends.openmp.is_available():
        for part in parts:
            work(part)
        return
    threads = min(before, len(parts))
    _start(threads - 1)
    left, errors, done = list(reversed(parts)), [], SimpleQueue()
    inference = torch.is_inference_mode_enabled()

    def run() -> None:
        try:
            with torch.inference_mode(inference):
                while left:
                    try:
                        part = left.pop()
                    except IndexError:  # another thread was faster
                        return
                    work(part)
        except BaseException as error:  # noqa: BLE001 - it is raised where the work was asked for
            left.clear()
            errors.append(error)
        finally:
            done.put(None)

    torch.set_num_threads(1)
    try:
        for _ in range(threads - 1):
            _jobs.put(run)
        run()
        for _ in range(threads):
            done.get()
    finally:
        torch.set_num_threads(before)
    if errors:
        raise errors[0]


def _start(threads: int) -> None:
    global _started
    while _started < threads:
        _started += 1
        ready = SimpleQueue()
        _thread.start_new_thread(_serve, (ready,))
        ready.get()


def _serve(ready: SimpleQueue) -> None:
    torch.set_num_threads(1)  # MKL counts for all, until the caller of `each` sets its number again
    ready.put(None)
    while True:
        _jobs.get()()


def _forget() -> None:
    """In a forked child, where the threads are gone."""
    global _jobs, _started
    _jobs, _started = SimpleQueue(), 0


os.register_at_fork(after_in_child=_forget)
