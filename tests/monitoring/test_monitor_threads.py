"""Monitors used by several threads, and copied."""

import copy
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import recurrent_laplace as rl

D, THREADS, STEPS = 2, 8, 40


@pytest.fixture
def monitor():
    posterior = rl.LaplacePosterior(rl.Memory(rl.GRU(D, 4, key=jax.random.key(0))), covariance="diagonal")
    monitor = rl.Monitor(posterior)
    monitor.step(jnp.zeros(D))
    monitor.reset()
    return monitor


@pytest.fixture(autouse=True)
def switch_often():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_no_step_is_lost(monitor):
    counts, start = [], threading.Barrier(THREADS)

    def work():
        start.wait()
        counts.extend(int(monitor.step(np.ones(D)).step) for _ in range(STEPS))

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(counts) == list(range(1, THREADS * STEPS + 1))
    assert monitor.state.step == THREADS * STEPS


def test_a_reset_waits_for_the_running_step(monitor):
    """Otherwise the end of that step would restore the state from before the reset."""
    compiled, entered, released = monitor._step, threading.Event(), threading.Event()

    def slow(*arguments):
        entered.set()
        assert released.wait(30)
        return compiled(*arguments)

    monitor._step = slow
    stepping = threading.Thread(target=monitor.step, args=(np.ones(D),))
    stepping.start()
    assert entered.wait(30)
    resetting = threading.Thread(target=monitor.reset)
    resetting.start()
    resetting.join(0.2)
    released.set()
    stepping.join()
    resetting.join()
    assert monitor.state.step == 0


@pytest.mark.parametrize("make_copy", [copy.copy, copy.deepcopy])
def test_copies_are_independent(monitor, make_copy):
    monitor.step(np.ones(D))
    other = make_copy(monitor)
    assert other.step(np.ones(D)).step == 2
    assert other.step(np.ones(D)).step == 3
    assert monitor.step(np.ones(D)).step == 2


def test_a_monitor_in_use_is_saved(monitor, tmp_path):
    monitor.step(np.ones(D))
    rl.save(tmp_path / "monitor", monitor)
    again = rl.load(tmp_path / "monitor")
    assert again.step(np.ones(D)).entropy == monitor.step(np.ones(D)).entropy
