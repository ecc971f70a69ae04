"""The page in a real browser: Debian's Chromium, headless."""

import shutil

import pytest
from paper_runs import paper_frames

from recurrent_laplace.report import page as pages
from recurrent_laplace.report.figures import FIGURES

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]

EVIL = "<script>document.title = 'broken'</script>"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A page of everything, as `report` writes it."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pages, "load_frames", lambda folder: paper_frames(seeds=2, unusual=EVIL))
        return pages.write_report(folder)


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as runner:
        # As root, as in a container, Chromium has no sandbox to start in.
        browser = runner.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(params=[(1280, "light"), (390, "light"), (390, "dark")], ids=lambda p: f"{p[0]}-{p[1]}")
def page(request, browser, written):
    """The page, opened from disk, of which nothing may be complained about or asked for."""
    width, scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = context.new_page()
    said, asked = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda wanted: asked.append(wanted.url))
    page.goto(written.as_uri())
    yield page
    context.close()
    assert not said
    assert {url for url in asked if not url.startswith("data:")} == {written.as_uri()}


def test_figures_are_seen(page):
    pictures = page.locator("figure img")
    assert pictures.count() == len(FIGURES)
    for index in range(len(FIGURES)):
        picture = pictures.nth(index)
        picture.scroll_into_view_if_needed()
        assert picture.is_visible()
        box = picture.bounding_box()
        assert box["width"] > 200
        assert box["height"] > 100
        assert picture.evaluate("image => image.complete && image.naturalWidth > 0")
        # White behind a figure, whatever the page's own colours.
        assert picture.evaluate("image => getComputedStyle(image.parentElement).backgroundColor") == (
            "rgb(255, 255, 255)"
        )


def test_names_of_runs_are_text(page):
    assert "broken" not in page.title()
    assert page.locator("script").count() == 0
    assert page.locator("#runs-table code", has_text=EVIL).first.is_visible()


def test_links_go_to_their_places(page):
    links = page.locator("nav a")
    assert links.count() == 4 + len(FIGURES)
    for index in range(links.count()):
        link = links.nth(index)
        link.click()
        target = link.get_attribute("href")
        box = page.locator(target).bounding_box()
        assert 0 <= box["y"] < 844, target
    first = page.locator(".claims tbody a").first
    first.scroll_into_view_if_needed()
    first.click()
    assert 0 <= page.locator(first.get_attribute("href")).bounding_box()["y"] < 200


def test_nothing_is_wider_than_the_screen(page):
    page.locator("details").evaluate_all("all => all.forEach(one => { one.open = true })")
    widths = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert widths[0] <= widths[1]


def test_runs_behind_a_figure_unfold_and_lead_to_the_table(page):
    figure = page.locator("#figure-1")
    assert not figure.locator("li").first.is_visible()
    figure.locator("summary").press("Enter")
    link = figure.locator("li a").first
    assert link.is_visible()
    link.click()
    assert page.locator("tr:target").count() == 1


def test_the_keyboard_reaches_the_claims_first(page):
    page.keyboard.press("Tab")
    focused = page.evaluate("document.activeElement.textContent")
    assert focused == "Skip to the claims"
    assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    page.keyboard.press("Enter")
    assert page.url.endswith("#claims")


def test_it_prints_without_navigation(browser, written):
    page = browser.new_page()
    page.goto(written.as_uri())
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    assert page.locator("#figure-15 img").is_visible()
    assert page.pdf(format="A4").startswith(b"%PDF")
    page.close()
