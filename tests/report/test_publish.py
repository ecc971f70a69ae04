"""`studies/publish.py`: a page, its figures and tables, and lines for the README, all from the runs."""

import dataclasses
import re
import sys
from pathlib import Path

import pytest
from support.paper_runs import paper_run
from support.synthetic import synthetic_frames

from recurrent_laplace.report.claims import Gate, Verdict
from recurrent_laplace.report.figures import FIGURES
from recurrent_laplace.report.raw import CONTENT
from recurrent_laplace.runs.presets import load_sweep
from recurrent_laplace.sweeps.looks import Reproduction, look_tables

ROOT = Path(__file__).parents[2]
NAVIGATION = "nav:\n  - Lab:\n      - Robustness: lab/robustness.md\n"


@pytest.fixture
def publish(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "studies")
    import publish

    monkeypatch.setattr(publish, "FIGURES", (FIGURES[0], FIGURES[7]))
    yield publish
    del sys.modules["publish"]


def verdict(id, outcome, column, **others):
    return Verdict(id, f"claim {id}", "rule", outcome, "a. b.", 3, column, (), None, "one | two.", **others)


@pytest.fixture
def published(publish, tmp_path):
    tables, source = load_sweep("reproduce-smoke")
    reproduction = Reproduction.make(tmp_path / "runs", tables, source)
    reproduction.write(1, look_tables(tables, 1))
    frames = synthetic_frames(
        paper_run("regression", "rnn", None, seconds=3600.0, cores=2),
        paper_run("regression", "vrnn", "diagonal"),
        seeds=3,
    )
    frames = dataclasses.replace(frames, provenance={frames.runs["run"][0]: [{"commit": 40 * "c"}]})
    verdicts = [
        verdict("R1", "reproduced", "released"),
        verdict("R1", "on par", "written"),
        verdict("T1", "agents not trained", "released"),
        verdict("T1", "not reproduced", "written"),
        verdict("T1", "reproduced", "written, beta 1e-4"),
        verdict("P1", "reproduced", "both"),
    ]
    gates = [Gate("RNN on regression", "written", "an error", True)]
    return publish.Published(reproduction.path, frames, verdicts, gates)


@pytest.fixture
def written(published, tmp_path):
    (tmp_path / "docs" / "lab").mkdir(parents=True)
    (tmp_path / "mkdocs.yml").write_text(NAVIGATION)
    return published.write(tmp_path / "docs")


def rows(text, heading):
    section = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [re.split(r"(?<!\\) ?\| ?", line)[1:-1] for line in section.splitlines() if line.startswith("| ")]


def test_the_page_has_both_columns(written):
    text = written.read_text()
    head, first, second, third = rows(text, "Claims")
    assert head == ["id", "claim", "as released", "as written", "evidence", "figure"]
    assert first == ["R1", "claim R1", "reproduced", "on par", r"one \| two.", "3"]
    assert second[2:4] == ["agents not trained", "not reproduced; beta 1e-4: reproduced"]
    assert third[2:4] == ["reproduced", "reproduced"]
    assert rows(text, "Gates")[1] == ["RNN on regression", "passed: an error"]
    assert "on 2026-01-01 with `recurrent-laplace reproduce --scale smoke`" in text
    assert f"commit: `{40 * 'c'}`" in text
    assert "2 core-hours. look 1: 0 of 26 runs done." in text
    assert text.count("\n## ") == 8
    assert "### What was difficult" in text
    # Neither the folder of the runs nor any other path of this machine.
    assert str(written.parent.parent.parent) not in text


def test_figures_and_tables_are_beside_it(written):
    links = re.findall(r"\]\((reproduction/[^)]*)\)", written.read_text())
    assert len(links) == 2 + len(CONTENT)
    found = {f"reproduction/{file.name}" for file in (written.parent / "reproduction").iterdir()}
    assert found == set(links)


def test_it_is_in_the_navigation_once(published, written, tmp_path):
    published.write(tmp_path / "docs")
    entry = "      - Reproduction of the paper: lab/reproduction.md\n"
    assert (tmp_path / "mkdocs.yml").read_text() == NAVIGATION.replace("  - Lab:\n", f"  - Lab:\n{entry}")
    assert "  - Lab:\n" in (ROOT / "mkdocs.yml").read_text()


def test_five_lines_for_the_readme(published):
    lines = published.readme()
    assert len(lines) == 5
    assert lines[0].startswith(
        "3 claims of the paper, judged on 2 runs with up to 3 seeds, 2 core-hours, on 2026-01-01"
    )
    assert lines[1] == "- As released: 1 reproduced, 1 agents not trained."
    assert lines[2] == "- As written: 1 not reproduced, 1 on par."
    assert "beta 1e-4: 1 reproduced. Both columns: 1 reproduced. 1 of 1 gates passed" in lines[3]
    assert "(docs/lab/reproduction.md)" in lines[4]


def test_a_directory_without_runs_is_refused(publish, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["publish.py", str(tmp_path), "--docs", str(tmp_path)])
    with pytest.raises(SystemExit, match="has no finished run to report on"):
        publish.main()
    assert not list(tmp_path.iterdir())
