"""The examples of README and documentation run, and the site holds its pages."""

import html
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from support.markdown import code_blocks
from support.verbs import float32

from recurrent_laplace.models.posterior_config import POSTERIORS
from recurrent_laplace.tasks import TASKS

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
SNIPPET = re.compile(r'--8<-- "(.*)"')


def test_readme_example(capsys):
    (block,) = code_blocks(README.read_text())
    assert len(block.strip().splitlines()) <= 12
    exec(block, {})
    assert "(5, 64)" in capsys.readouterr().out


OWN_BLOCKS = [
    (page.stem, block)
    for page in PAGES
    for block in code_blocks(page.read_text())
    # A block that is a file of examples/ is run by test_examples.py.
    if not SNIPPET.search(block)
]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "block"), OWN_BLOCKS, ids=[page for page, _ in OWN_BLOCKS])
def test_page_example(page, block, monkeypatch, tmp_path, capsys):
    monkeypatch.syspath_prepend(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    with mock.patch.dict(TASKS), mock.patch.dict(POSTERIORS), float32():
        exec(block, {})
    # An example registers its task once for each import: the next to import it starts anew.
    for name in {"add_a_task", "add_a_posterior"} & (set(sys.modules) - before):
        del sys.modules[name]
    assert capsys.readouterr().out


@pytest.mark.parametrize("part", ["cell", "posterior", "task"])
def test_how_to_page_shows_its_example(part):
    page = (ROOT / "docs" / f"add-a-{part}.md").read_text()
    assert SNIPPET.findall(page) == [f"examples/add_a_{part}.py"]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    # Not --quiet: it drops the warnings before --strict counts them.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.site
def test_site_has_every_page(site):
    assert {page.stem for page in PAGES} <= {path.stem for path in site.rglob("*.html")}


@pytest.mark.site
@pytest.mark.parametrize("part", ["cell", "posterior", "task"])
def test_site_holds_the_whole_example(site, part):
    text = html.unescape(re.sub(r"<[^>]*>", "", (site / f"add-a-{part}.html").read_text()))
    assert (ROOT / "examples" / f"add_a_{part}.py").read_text().strip() in text


@pytest.mark.site
def test_site_fetches_nothing_from_elsewhere(site):
    elsewhere = r"""["']?(?:https?:)?//[^"')\s]*"""
    fetched = re.compile(rf"(?:<link\b[^>]*\bhref|\bsrc|\bsrcset)={elsewhere}|url\({elsewhere}")
    files = [*site.rglob("*.html"), *site.rglob("*.css")]
    assert len(files) > len(PAGES)
    assert {file.name: found for file in files if (found := fetched.findall(file.read_text()))} == {}
