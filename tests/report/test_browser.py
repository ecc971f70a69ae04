"""Pages in headless Chromium."""

import contextlib
import shutil

import jax
import numpy as np
import polars as pl
import pytest
from support.episodes import monitored_episodes
from support.paper_runs import paper_frames

import recurrent_laplace as rl
from recurrent_laplace.report import page as pages
from recurrent_laplace.report.figures import FIGURES
from recurrent_laplace.report.monitor import write_monitor_page
from recurrent_laplace.report.shiftbench import write_shift_page

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]

EVIL = "<script>document.title = 'broken'</script>"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Report page of all figures."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "load_frames", lambda folder: paper_frames(seeds=2, unusual=EVIL))
        return pages.write_report(folder)


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as runner:
        # Chromium cannot start its sandbox as root, as in a container.
        browser = runner.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


SCREENS = [(1280, "light"), (390, "light"), (390, "dark")]


@contextlib.contextmanager
def opened(browser, path, width, scheme):
    """Open a page from disk, and check that it logs nothing and requests nothing else."""
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = context.new_page()
    messages, requests = [], []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    yield page
    context.close()
    assert not messages
    assert {url for url in requests if not url.startswith("data:")} == {path.as_uri()}


@pytest.fixture(params=SCREENS, ids=lambda p: f"{p[0]}-{p[1]}")
def page(request, browser, written):
    with opened(browser, written, *request.param) as page:
        yield page


def assert_fits(page):
    widths = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert widths[0] <= widths[1]


def assert_links_lead_into_view(page):
    links = page.locator("nav a").all()
    assert len(links) >= 4
    for link in links:
        link.click()
        assert 0 <= page.locator(link.get_attribute("href")).bounding_box()["y"] < 844


def loaded_pictures(page, count):
    pictures = page.locator("figure img").all()
    assert len(pictures) == count
    for picture in pictures:
        picture.scroll_into_view_if_needed()
        assert picture.evaluate("image => image.complete && image.naturalWidth > 0")
    return pictures


def test_figures_are_visible(page):
    for picture in loaded_pictures(page, len(FIGURES)):
        assert picture.is_visible()
        box = picture.bounding_box()
        assert box["width"] > 200
        assert box["height"] > 100
        # The background of a figure is white in every colour scheme.
        assert picture.evaluate("image => getComputedStyle(image.parentElement).backgroundColor") == (
            "rgb(255, 255, 255)"
        )


def test_names_of_runs_are_text(page):
    assert "broken" not in page.title()
    assert page.locator("script").count() == 0
    assert page.locator("#runs-table code", has_text=EVIL).first.is_visible()


def test_links_go_to_their_places(page):
    assert page.locator("nav a").count() == 9 + len(FIGURES)
    assert_links_lead_into_view(page)
    first = page.locator(".claims tbody a").first
    first.scroll_into_view_if_needed()
    first.click()
    assert 0 <= page.locator(first.get_attribute("href")).bounding_box()["y"] < 200


def test_nothing_is_wider_than_the_screen(page):
    page.locator("details").evaluate_all("all => all.forEach(details => { details.open = true })")
    assert_fits(page)


def test_runs_behind_a_figure_unfold_and_lead_to_the_table(page):
    figure = page.locator("#figure-1")
    assert not figure.locator("li").first.is_visible()
    figure.locator("summary").press("Enter")
    link = figure.locator("li a").first
    link.click()
    page.locator("tr:target").wait_for()


def test_the_keyboard_reaches_the_claims_first(page):
    page.keyboard.press("Tab")
    focused = page.evaluate("document.activeElement.textContent")
    assert focused == "Skip to the claims"
    assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    page.keyboard.press("Enter")
    # The key returns before the navigation has happened.
    page.wait_for_url("**#claims")


def test_it_prints_without_navigation(browser, written):
    page = browser.new_page()
    page.goto(written.as_uri())
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    assert page.locator("#figure-15 img").is_visible()
    assert page.pdf(format="A4").startswith(b"%PDF")
    page.close()


# Pages of `monitor` and `shiftbench`.


@pytest.fixture(scope="module")
def monitored(tmp_path_factory):
    """Page of three short episodes of an agent whose name is markup."""
    keys = jax.random.split(jax.random.key(0), 4)
    memory = rl.Memory(rl.GRU(2, 4, key=keys[0]))
    policy, value = rl.Affine.init(4, 3, key=keys[1]), rl.Affine.init(4, 1, key=keys[2])
    monitor = rl.Monitor(
        rl.LaplacePosterior(memory),
        policy=lambda z, context: policy(z),
        value=lambda z, context: value(z),
        streams=3,
    )
    inputs = jax.random.normal(keys[3], (8, 3, 2))
    episodes = monitored_episodes(monitor, inputs, actions=[0, 1] * 4, rewards=[[0.0, 1.0] * 4] * 3)
    out = tmp_path_factory.mktemp("monitored") / "monitor.html"
    write_monitor_page(out, monitor, episodes, name=EVIL, environment=EVIL, command=EVIL)
    return out


@pytest.fixture(scope="module")
def shifts(tmp_path_factory):
    """Page of two shifts, three scores and two agents."""
    random = np.random.default_rng(0)
    rows = [
        {
            **{"seed": seed, "shift": shift, "score": score, "base_rate": 0.5, "early": 0.0},
            **{name: random.uniform() for name in ("auroc", "aupr", "fpr95", "missed", "false_alarms")},
            **{"auroc_low": 0.1, "auroc_high": 0.9, "delay": 3.0},
            **{"return_kept": 1.0, "return_reset": 2.0 + random.uniform()},
        }
        for seed in range(2)
        for shift in ("moved", "new_task")
        for score in ("combined alarm", "TD error", EVIL)
    ]
    out = tmp_path_factory.mktemp("shifts") / "shiftbench.html"
    write_shift_page(out, pl.DataFrame(rows), task="gridworld", agents=2, command=EVIL)
    return out


@pytest.mark.parametrize("screen", SCREENS, ids=lambda p: f"{p[0]}-{p[1]}")
@pytest.mark.parametrize("name", ["monitored", "shifts"])
def test_other_pages(name, screen, browser, request):
    with opened(browser, request.getfixturevalue(name), *screen) as page:
        assert page.title() != "broken"
        assert page.locator("script").count() == 0
        assert page.get_by_text(EVIL).first.is_visible()
        assert_fits(page)
        assert_links_lead_into_view(page)
        for picture in loaded_pictures(page, 4 if name == "monitored" else 0):
            assert picture.get_attribute("alt").startswith(("All episodes: ", "Episode "))
        page.keyboard.press("Tab")
