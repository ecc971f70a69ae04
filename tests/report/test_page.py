"""Report page: verdicts first, self-contained, and names escaped."""

import dataclasses
import html
import html.parser
import re
import shutil
from pathlib import Path

import polars as pl
import pytest
from support.paper_runs import paper_frames
from support.runs import SIZES
from support.verbs import float32

import recurrent_laplace as rl
from recurrent_laplace.cli import main
from recurrent_laplace.files import StorageError, read_sealed
from recurrent_laplace.report import page
from recurrent_laplace.report.claims import OUTCOMES, Gate, Verdict
from recurrent_laplace.report.figures import FIGURES
from recurrent_laplace.report.page import PageFigure, page_figure, render_page, write_report
from recurrent_laplace.report.raw import CONTENT
from recurrent_laplace.report.style import save_figure
from recurrent_laplace.runs.config import Run

EVIL = "<script>alert('run')</script>"
WORDS = OUTCOMES


def verdicts():
    """One claim for each outcome as written, of which the first has all columns, and one with both in one."""
    made = [
        Verdict(f"C{i}", f"claim {i} <b>", f"rule {i}", word, f"evidence {i} & more", 1 + 2 * i, "written")
        for i, word in enumerate(WORDS)
    ]
    others = [
        dataclasses.replace(made[0], verdict=word, evidence=f"evidence of {column}", column=column)
        for column, word in (("released", "on par"), ("written, beta 1e-4", "not decided"))
    ]
    single = Verdict(
        "D0", "claim of D0", "rule of D0", "reproduced", "one. two.", 1, "both", (), None, "one."
    )
    return [*made, *others, single]


GATES = [
    Gate("RNN on gridworld", "released", "a return of 9 <i>", False),
    Gate("RNN on gridworld", "written", "a return of 9 <i>", True),
    Gate("diagonal VRNN from scratch on gridworld", "written", "exact Bayes", None),
]
TABLES = {"claims": "tables/claims.parquet", "runs": "tables/runs.parquet"}


class Elements(html.parser.HTMLParser):
    """Tags with their attributes, in order, and the text of the page."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)

    def of(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def frames():
    return paper_frames(seeds=2, unusual=EVIL)


@pytest.fixture(scope="module")
def rendered(frames):
    runs = sorted(frames.runs["run"])
    figures = [PageFigure(entry, "data:image/svg+xml;base64,", 800, runs) for entry in FIGURES]
    folder = Path("runs/<u>here")
    return render_page(
        frames, verdicts(), figures, gates=GATES, tables=TABLES, name="<i>study</i>", folder=folder
    )


@pytest.fixture(scope="module")
def elements(rendered):
    return Elements(rendered)


def test_gates_and_claims_come_first_and_are_complete(rendered, elements):
    order = [attributes["id"] for tag, attributes in elements.tags if tag == "h2"]
    sections = ["gates", "claims", "figures", "summary", "options", "cost", "raw", "runs", "left-out"]
    assert order == sections
    text = " ".join(elements.words)
    for verdict in verdicts():
        for part in (verdict.id, verdict.claim, verdict.rule, verdict.evidence, verdict.verdict):
            assert part in text
        row = rendered[rendered.index(f'id="claim-{verdict.id}"') :].partition("</tr>")[0]
        assert f'href="#figure-{verdict.figure}"' in row
        assert f'class="verdict {verdict.verdict.replace(" ", "-")}"' in row
    assert rendered.count('id="claim-C0"') == 1


def test_verdicts_are_counted_by_column(rendered):
    tallies = dict(re.findall(r'<ul class="tally" aria-label="(.*?)">(.*?)</ul>', rendered, re.DOTALL))
    assert {title: re.findall(r">(\d [a-z ]+)<", words) for title, words in tallies.items()} == {
        "As released": ["1 on par"],
        "As written": [f"1 {word}" for word in WORDS],
        "As written, beta 1e-4": ["1 not decided"],
        "Both columns": ["1 reproduced"],
    }


def test_gates_are_shown_by_column(rendered):
    table = rendered[rendered.index('<table class="claims gates">') :].partition("</table>")[0]
    rows = [re.findall(r"<td.*?</td>", row, re.DOTALL) for row in table.split("<tr>")[2:]]
    found = [[re.sub(r"<.*?>", "", cell).strip() for cell in row] for row in rows]
    assert found == [
        ["failed a return of 9 &lt;i&gt;", "passed a return of 9 &lt;i&gt;", "-"],
        ["-", "unknown missing: exact Bayes", "-"],
    ]


def test_a_claim_is_told_in_one_sentence(rendered):
    row = rendered[rendered.index('id="claim-D0"') :].partition("</tr>")[0]
    before = row.partition("<details>")[0]
    assert "one." in before
    assert "two." not in before
    assert 'colspan="2"' in row


def test_names_are_shown_as_text(rendered, elements):
    assert "<script" not in rendered.lower()
    assert not {"script", "i", "u", "b"} & {tag for tag, _ in elements.tags}
    text = " ".join(elements.words)
    assert text.count(EVIL) >= 2
    assert "<i>study</i>" in text
    assert "claim 0 <b>" in text


def test_every_link_inside_the_page_has_its_target(elements):
    names = [attributes["id"] for _, attributes in elements.tags if "id" in attributes]
    assert len(names) == len(set(names))
    links = [attributes["href"] for attributes in elements.of("a")]
    assert len(links) > 100
    inside = {link for link in links if link.startswith("#")}
    assert {link.removeprefix("#") for link in inside} <= set(names)
    assert set(links) - inside == set(TABLES.values())
    assert {f"figure-{entry.number}" for entry in FIGURES} <= set(names)


def test_page_makes_no_network_requests(rendered, elements):
    for _, attributes in elements.tags:
        for name in ("src", "href", "srcset", "action"):
            value = attributes.get(name) or "#"
            assert value.startswith(("#", "data:")) or value in TABLES.values(), value
    assert "@import" not in rendered
    assert "url(" not in rendered


def test_every_figure_has_an_alternative_text_and_its_runs(frames, rendered, elements):
    pictures = elements.of("img")
    assert [picture["alt"] for picture in pictures] == [entry.alt for entry in FIGURES]
    assert all(len(str(picture["alt"])) > 40 for picture in pictures)
    assert rendered.count("<details>") == len(FIGURES) + len(frames.runs) + len(WORDS) + 1
    assert "recurrent-laplace report &#39;runs/&lt;u&gt;here&#39;" in rendered


def test_runs_and_those_left_out_are_listed(frames, elements):
    text = " ".join(elements.words)
    for row in frames.runs.iter_rows(named=True):
        assert row["run"] in text
    assert "sum of precisions dense, window 1, fine-tuned on the snapshot at 0.75" in text
    assert "gridworld-point-ffffffffffff" in text
    assert "interrupted" in text
    assert "started on 2026-01-01" in text


def test_summary_options_and_cost_are_shown(frames):
    run = Run(config=rl.Config(learning=rl.LearningConfig(batch=77)))
    name = frames.runs.filter(pl.col("task") == "gridworld")["run"][0]
    provenance = {name: [{"commit": 40 * "a", "packages": {"jax": "0.9.1"}, "processor": "EPYC"}]}
    other = dataclasses.replace(
        frames, configured={name: run}, provenance=provenance, left_out_hours=0.25, judged=False
    )
    html = render_page(other, verdicts(), [], name="name", folder=Path("runs"))
    rows = [re.sub("<.*?>", " ", row).split() for row in re.findall(r"<tr>.*?</tr>", html, re.DOTALL)]
    assert ["learning.batch", "77"] in rows
    # Runs of two seeds: 0.2 s an update against the RNN's 0.1 s, on each of three tasks.
    assert ["VRNN", "diagonal", *3 * ["100", "ms,", "2", "x"]] in rows
    text = " ".join(" ".join(Elements(html).words).split())
    assert "Scope of reproducibility" in text
    assert f"Commit of the package: {40 * 'a'}" in text
    assert "0.25 core-hours in all, 0.25 of them in runs that are left out" in text
    # One notice in place of a sentence for each claim.
    assert text.count("learn nothing") == 2
    assert "Runs of preset smoke show" in text.partition("Gates: what")[0]


def test_only_ascii_is_written(frames):
    other = dataclasses.replace(frames, left_out={"größe": "läuft"})
    text = render_page(other, [], [], name="name", folder=Path("runs"))
    assert text.isascii()
    assert "gr&#246;&#223;e" in text


def test_versions_and_commands_come_from_the_sessions(frames):
    run = frames.runs["run"][1]
    session = {
        "command": ["/somewhere/bin/recurrent-laplace", "train", "--out", "a b"],
        "python": "3.11.9",
        "packages": {"jax": "0.9.1"},
        "processor": "EPYC",
        "cores": 2,
        "platform": "Linux",
    }
    worker = session | {"command": ["/somewhere/sweeps/worker.py", "runs"]}
    other = dataclasses.replace(frames, provenance={run: [worker, session, session]})
    text = " ".join(Elements(render_page(other, [], [], name="name", folder=Path("runs"))).words)
    assert text.count("recurrent-laplace train --out 'a b'") == 1
    assert "/somewhere" not in text
    assert "worker.py" not in text
    assert "python 3.11.9, jax 0.9.1" in text
    assert "EPYC, 2 cores, Linux" in text


def test_sweeps_are_named_by_their_command(frames, tmp_path):
    (tmp_path / "sweep.toml").write_text("")
    figure = PageFigure(FIGURES[0], "data:,", 800, [], ["from scratch: VRNN <b>"])
    text = render_page(frames, [], [figure], name="name", folder=tmp_path)
    assert f"recurrent-laplace sweep {tmp_path}/sweep.toml --out {tmp_path}" in text
    assert "<p>No runs.</p>" in text
    # In the part that is folded away.
    assert "VRNN &lt;b&gt;" in text.partition("Command and runs behind")[2].partition("</details>")[0]


def test_the_same_figure_gives_the_same_bytes(frames, tmp_path):
    entry = FIGURES[7]
    pictures = []
    for _ in range(2):
        drawing = entry.draw(frames)
        for suffix in ("pdf", "svg"):
            save_figure(drawing, tmp_path / f"{entry.stem}.{suffix}")
        pictures.append((tmp_path / f"{entry.stem}.pdf").read_bytes())
        pictures.append(page_figure(entry, drawing, tmp_path))
    assert pictures[:2] == pictures[2:]


@pytest.fixture
def two_figures(monkeypatch, frames):
    """Reduce the report to two figures."""
    monkeypatch.setattr(page, "FIGURES", (FIGURES[0], FIGURES[14]))
    monkeypatch.setattr(page, "load_frames", lambda folder: frames)
    monkeypatch.setattr(page, "judge", lambda frames: verdicts()[:1])


def test_report_writes_figures_and_page(two_figures, tmp_path, capsys):
    main(["report", str(tmp_path)])
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "report.html")
    stems = {FIGURES[0].stem, FIGURES[14].stem}
    assert {file.name for file in (tmp_path / "figures").iterdir()} == {
        f"{stem}.{suffix}" for stem in stems for suffix in ("pdf", "svg")
    }
    assert {file.stem for file in (tmp_path / "tables").iterdir()} == set(CONTENT)
    elements = Elements((tmp_path / "report.html").read_text())
    links = [str(attributes["href"]) for attributes in elements.of("a")]
    assert [link for link in links if "#" not in link] == [f"tables/{name}.parquet" for name in CONTENT]
    assert len(elements.of("img")) == 2
    assert all(re.match(r"data:image/svg\+xml;base64,[\w+/]{100}", str(p["src"])) for p in elements.of("img"))


@pytest.mark.slow
def test_report_to_another_file(two_figures, tmp_path):
    out = tmp_path / "elsewhere.html"
    assert write_report(tmp_path, out) == out
    assert out.exists()
    assert not (tmp_path / "report.html").exists()


def test_report_to_an_invalid_path(two_figures, tmp_path):
    with pytest.raises(StorageError, match="there is no directory"):
        write_report(tmp_path, tmp_path / "missing" / "page.html")
    with pytest.raises(StorageError, match="it is a directory"):
        write_report(tmp_path, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_figure_that_fails_leaves_the_old_page(two_figures, tmp_path, monkeypatch, command):
    def broken(frames):
        raise StorageError("broken.")

    monkeypatch.setattr(page, "FIGURES", (FIGURES[0], dataclasses.replace(FIGURES[1], draw=broken)))
    (tmp_path / "report.html").write_text("old")
    command("report", tmp_path).refused("broken.")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    assert (tmp_path / "report.html").read_text() == "old"


@pytest.mark.parametrize("exists", [True, False])
def test_nothing_to_report_on(tmp_path, command, exists):
    folder = tmp_path / "runs"
    if exists:
        folder.mkdir()
    command("report", folder).refused("no finished run" if exists else "there is no directory")
    assert not list(tmp_path.rglob("*.html"))
    assert not list(tmp_path.rglob("figures"))


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Two runs of the command line: an RNN, and a Laplace posterior on its weights."""
    folder = tmp_path_factory.mktemp("real")
    with float32():
        main(["train", "--task", "regression", *SIZES, "--seeds", "2", "--out", str(folder)])
        (run,) = folder.iterdir()
        main(["evaluate", str(run)])
        main(["posthoc", str(run), "--posterior", "laplace"])
    return folder


@pytest.fixture
def report(monkeypatch, command):
    """Run `report` with some of the figures."""

    def run(folder, *figures):
        monkeypatch.setattr(page, "FIGURES", tuple(FIGURES[number - 1] for number in figures))
        return command("report", folder)

    return run


@pytest.mark.slow
@pytest.mark.usefixtures("programs")
def test_real_runs_have_their_configuration_and_predictions(real, report):
    assert report(real, 4, 14).check(0).out.splitlines()[-1] == str(real / "report.html")
    text = (real / "report.html").read_text()
    runs = [folder.name for folder in real.iterdir() if (folder / "config.toml").exists()]
    assert len(runs) == 2
    for run in runs:
        # In the table, and behind figure 14.
        assert text.count(f"<code>{run}</code>") >= 2
        assert html.escape(read_sealed(real / run / "config.toml")).replace("&quot;", "&#34;") in text
    assert "recurrent_laplace" not in text
    assert "jax " in text


@pytest.mark.slow
@pytest.mark.usefixtures("programs")
def test_a_damaged_run_is_left_out_with_the_reason(real, tmp_path, report):
    folder = tmp_path / "runs"
    shutil.copytree(real, folder, ignore=shutil.ignore_patterns("figures", "report.html"))
    table = next(folder.glob("regression-point-*/evaluation.parquet"))
    table.write_bytes(table.read_bytes()[:100])
    assert f"left out: {table.parent.name}: cannot read {table}" in report(folder, 1).check(0).err
    text = (folder / "report.html").read_text()
    assert f"<code>{table.parent.name}</code>: cannot read" in text
    (posthoc,) = folder.glob("regression-laplace-*")
    (posthoc / "config.toml").write_text("[task]\n")
    done = report(folder, 1).check(2)
    assert "no finished run" in done.err


@pytest.mark.slow
@pytest.mark.usefixtures("programs")
def test_runs_of_preset_smoke_are_not_judged(real, tmp_path, report):
    folder = tmp_path / "runs"
    shutil.copytree(real, folder, ignore=shutil.ignore_patterns("figures", "report.html"))
    files = (("sweep.toml", "small"), ("sweep.toml", "smoke"), ("reproduction.toml", "smoke"))
    for name, preset in files:
        words = "not judged" if preset == "smoke" else "not decided"
        (folder / "sweep.toml").unlink(missing_ok=True)
        (folder / name).write_text(f'preset = "{preset}"\n')
        report(folder, 1).check(0)
        text = (folder / "report.html").read_text()
        assert re.search(rf">\d+ {words}<", text)
        assert ("not judged<" in text) == (preset == "smoke")
