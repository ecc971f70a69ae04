"""Page and printed table of episodes with non-finite readings."""

import io

import jax
import numpy as np
import pytest
from rich.console import Console
from support.episodes import monitored_episodes

import recurrent_laplace as rl
from recurrent_laplace.cli.monitor import episode_table
from recurrent_laplace.report.monitor import write_monitor_page

D, T = 2, 6


@pytest.fixture(scope="module")
def monitored():
    """Two episodes, the second with a NaN input and an infinite reward."""
    posterior = rl.LaplacePosterior(rl.Memory(rl.GRU(D, 3, key=jax.random.key(0))), covariance="diagonal")
    monitor = rl.Monitor(posterior, streams=2)
    inputs = np.random.default_rng(0).normal(size=(T, 2, D))
    inputs[3, 1] = np.nan
    rewards = [[1.0] * T, [1.0] * (T - 1) + [np.inf]]
    return monitor, monitored_episodes(monitor, inputs, actions=[0] * T, rewards=rewards)


def test_the_printed_table_says_not_finite(monitored):
    text = io.StringIO()
    Console(file=text, width=100).print(episode_table(monitored[1]))
    first, second = (line for line in text.getvalue().splitlines() if line.startswith(("│ 1", "│ 2")))
    assert "not finite" not in first
    # Return, entropy and KL.
    assert second.count("not finite") == 3
    assert "nan" not in text.getvalue()
    assert "inf" not in text.getvalue()


def test_the_page_says_not_finite(monitored, tmp_path):
    out = tmp_path / "page.html"
    write_monitor_page(out, *monitored, name="agent", environment="environment", command="command")
    page = out.read_text()
    assert '<span class="verdict not-reproduced">not finite</span> Not finite: ' in page
    assert '<td class="number-cell">not finite</td>' in page
    assert "a LaplacePosterior of 3 features (covariance diagonal, accumulate precision, window 1" in page
    assert ">nan" not in page
    assert ">inf<" not in page
