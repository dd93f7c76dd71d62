"""Parts on several threads: all of them done, errors raised, and nothing left behind."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest
import torch

import npu_core
from npu_core import workers


@pytest.fixture(autouse=True, params=[1, 2, 4])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("parts", [0, 1, 2, 3, 50])
def test_every_part_is_done_once(parts: int, threads: int) -> None:
    done: list[int] = []
    workers.each(done.append, range(parts))
    assert sorted(done) == list(range(parts))
    assert torch.get_num_threads() == threads


def test_parts_run_beside_each_other(threads: int) -> None:
    together = threading.Barrier(threads)
    workers.each(lambda part: together.wait(60), range(threads))  # else it breaks


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_an_error_is_raised_and_the_next_call_is_sound(kind: type, threads: int) -> None:
    def fail(part: int) -> None:
        if part == 3:
            raise kind("part 3")

    with pytest.raises(kind, match="part 3"):
        workers.each(fail, range(20))
    assert torch.get_num_threads() == threads
    test_every_part_is_done_once(50, threads)


def test_a_part_may_ask_for_parts(threads: int) -> None:
    done: list[tuple[int, int]] = []
    workers.each(lambda i: workers.each(lambda j: done.append((i, j)), range(3)), range(5))
    assert sorted(done) == [(i, j) for i in range(5) for j in range(3)]


A, B = torch.randn(300, 600), torch.randn(600, 400)


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_a_large_product_has_the_same_bits_for_any_number(mode: type, threads: int) -> None:
    with npu_core.use("910B"), mode():
        result = (A.npu() @ B.npu()).cpu()
        torch.set_num_threads(1)
        assert torch.equal(result, (A.npu() @ B.npu()).cpu())


def test_two_threads_of_the_user_share_the_workers() -> None:
    with npu_core.use("910B"):
        expected, found = A.npu() @ B.npu(), []
        users = [
            threading.Thread(target=lambda: found.append(torch.equal(A.npu() @ B.npu(), expected)))
            for _ in range(4)
        ]
        for user in users:
            user.start()
        for user in users:
            user.join()
    assert found == [True] * 4


def test_a_forked_child_has_workers_of_its_own() -> None:
    with npu_core.use("910B"):
        a, b = A.npu(), B.npu()
        expected = a @ b
        child = os.fork()
        if child == 0:
            torch.set_num_threads(2)  # for ours; OpenMP's own threads do not survive a fork
            found = a @ b
            torch.set_num_threads(1)
            os._exit(0 if torch.equal(found, expected) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
