"""Figures and claims from outside of the package, on the page beside its own."""

import dataclasses

import matplotlib
import polars as pl
import pytest
from support.synthetic import synthetic_frames, synthetic_run

from recurrent_laplace.report import page
from recurrent_laplace.report.claims import CLAIMS, judge
from recurrent_laplace.report.claims.verdict import Findings, claim
from recurrent_laplace.report.figures import FIGURES, FigureEntry
from recurrent_laplace.report.frames import Frames
from recurrent_laplace.report.page import write_report
from recurrent_laplace.report.panels import Drawing, record_runs
from recurrent_laplace.report.style import STYLE


def draw_parameters(frames: Frames) -> Drawing:
    """Draw the number of parameters of every run."""
    with matplotlib.rc_context(STYLE):
        figure = Drawing()
        axes = figure.subplots()
        axes.bar(frames.runs["run"].to_list(), frames.runs["parameters"].to_list())
        record_runs(axes, frames.runs)
    return figure


PARAMETERS = FigureEntry(
    number=16,
    name="parameters",
    title="Parameters of every run",
    alt="Bars: the number of parameters of each run.",
    caption="Counted from the shapes of the weights.",
    draw=draw_parameters,
)


@claim(
    "P1",
    "On the gridworld, the return of the RNN is above 10.",
    rule="The return of the last test step of the RNN is above 10.",
    figure=16,
)
def returns_are_high(frames: Frames, found: Findings) -> None:
    last = frames.tests("return", task="gridworld", method="rnn").filter(pl.col("t") == pl.col("t").max())
    seeds = dict(last.select("seed", "value").iter_rows())
    found.above("return of the RNN", seeds, 10.0, "reward")


@pytest.fixture
def frames():
    return synthetic_frames(synthetic_run(tests={"return": lambda seed, t: 0.1 * t + seed}), seeds=3)


def test_a_claim_from_outside_is_judged_beside_the_papers(frames):
    verdicts = judge(frames, (*CLAIMS, returns_are_high))
    assert list(dict.fromkeys(verdict.id for verdict in verdicts)) == [claim.id for claim in CLAIMS]
    assert [verdict.claim for verdict in verdicts[-2:]] == [returns_are_high.text] * 2
    assert verdicts[-1].verdict == "reproduced"
    assert "return of the RNN is 21" in verdicts[-1].evidence


def test_a_figure_from_outside_is_on_the_page(frames, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "load_frames", lambda folder: frames)
    figures = (FIGURES[14], PARAMETERS)
    text = write_report(tmp_path, figures=figures, claims=[returns_are_high]).read_text()
    assert {file.name for file in (tmp_path / "figures").glob("*.svg")} == {
        "figure-15-update-time.svg",
        "figure-16-parameters.svg",
    }
    assert 'id="figure-16"' in text
    assert PARAMETERS.caption in text
    assert 'id="claim-P1"' in text
    assert 'href="#figure-16"' in text


def test_a_number_belongs_to_one_figure(tmp_path):
    twin = dataclasses.replace(PARAMETERS, name="another")
    with pytest.raises(ValueError, match=r"^figures must have different numbers; two have number 16\.$"):
        write_report(tmp_path, figures=(PARAMETERS, twin))
