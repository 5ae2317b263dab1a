"""The page in a real browser: it draws, answers the mouse, asks the network for nothing and can be read."""

import re
from dataclasses import replace

import pytest

from terafactor.report import page as page_module
from terafactor.report import write_report
from terafactor.testing import make_history, make_report_context
from terafactor.testing.panel_contract import HOSTILE, hostile

VIEWS = [(width, scheme) for width in (1280, 400) for scheme in ("light", "dark")]

UNREADABLE = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b]
    .map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    for (; element; element = element.parentElement) {
      const color = parse(getComputedStyle(element).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const text = [...element.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data.trim()).join("");
    const style = getComputedStyle(element);
    if (!text || !element.offsetParent || ["SCRIPT", "STYLE"].includes(element.tagName)) continue;
    const [a, b] = [light(parse(style.color)), light(behind(element))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5) found.push(`contrast ${contrast.toFixed(1)}: ${text}`);
    if (parseFloat(style.fontSize) < 11) found.push(`${style.fontSize}: ${text}`);
  }
  return found;
}"""

PLACE = "document.getElementById('reconstruction').getBoundingClientRect().top"

PAINTED = """(figure) => {
  const canvas = figure.querySelector("canvas");
  const name = getComputedStyle(document.documentElement).getPropertyValue("--series0").trim();
  const wanted = [1, 3, 5].map((i) => parseInt(name.slice(i, i + 2), 16));
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  let n = 0;
  for (let i = 0; i < pixels.length; i += 4)
    if (pixels[i + 3] > 200 && wanted.every((v, c) => Math.abs(pixels[i + c] - v) < 12)) n += 1;
  return n;
}"""


class Visit:
    """A page that is open, with everything it asked for and complained about."""

    def __init__(self, browser, path, *, width=1280, scheme="light"):
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.complaints, self.requests = [], []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())

    def hover(self, share, chart=0):
        """Move the mouse over a chart, this far from its left, and return what it then says."""
        figure = self.page.locator("figure.chart").nth(chart)
        figure.scroll_into_view_if_needed()
        box = figure.locator(".u-over").bounding_box()
        self.page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
        tooltip = figure.locator(".tooltip")
        tooltip.wait_for(state="visible", timeout=5000)
        return tooltip.inner_text()

    def drag(self, start, stop):
        box = self.page.locator(".u-over").first.bounding_box()
        middle = box["y"] + box["height"] / 2
        self.page.mouse.move(box["x"] + start * box["width"], middle)
        self.page.mouse.down()
        self.page.mouse.move(box["x"] + stop * box["width"], middle, steps=4)
        self.page.mouse.up()


@pytest.fixture
def visit(chromium, tmp_path):
    """Write contexts to a page and open it."""
    opened = []

    def open_page(*contexts, **view):
        path = write_report(tmp_path / "report.html", *contexts)
        opened.append(Visit(chromium, path, **view))
        return opened[-1]

    yield open_page
    for one in opened:
        one.page.close()


STORIES = {
    "pictures": make_report_context(),
    "curves": make_report_context(geometry=None),
    "names": make_report_context(geometry=None, feature_names=[f"gene {i}" for i in range(30)]),
    "just begun": make_report_context(history=[], sample=None, components=None, stopped_by=None),
}


@pytest.mark.parametrize("kind", STORIES)
def test_page_is_quiet_and_asks_the_network_for_nothing(visit, kind):
    seen = visit(STORIES[kind])
    seen.page.wait_for_timeout(100)
    assert seen.complaints == []
    assert [url for url in seen.requests if not url.startswith(("file:", "data:image/png"))] == []
    assert len([url for url in seen.requests if url.startswith("file:")]) == 1


WRITTEN = """
  window.written = [];
  const fillText = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
    window.written.push([this.canvas, this.textAlign, text, place[0] - this.measureText(text).width]);
    fillText.call(this, text, ...place);
  };
"""


@pytest.mark.parametrize("n_atoms", [3, 7, 8])
def test_ticks_of_counts_are_whole_numbers(visit, n_atoms):
    seen = visit(make_report_context(n_atoms=n_atoms))
    seen.page.add_init_script(WRITTEN)
    seen.page.reload()
    ticks = seen.page.evaluate(
        """written
          .filter(([canvas]) => canvas.closest("figure").textContent.includes("Share of rows that use each atom"))
          .filter(([, align, text]) => align === "center" && !isNaN(text)).map(([, , text]) => text)"""
    )
    assert len(ticks) > 1
    assert all(tick.isdigit() for tick in ticks), ticks


@pytest.mark.parametrize("low", [0.0, 0.1234567])
def test_ticks_of_heights_are_not_cut_off(visit, low):
    history = [replace(line, sparsity=low + 1e-6 / line.step) for line in make_history()]
    seen = visit(make_report_context(history=history))
    seen.page.add_init_script(WRITTEN)
    seen.page.reload()
    lefts = seen.page.evaluate("written.filter(([, align]) => align === 'right').map(([, , , left]) => left)")
    assert len(lefts) > 10
    assert min(lefts) >= 0


def test_requests_are_refused_by_the_page_itself(visit):
    seen = visit(make_report_context())
    refused = seen.page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'sent', (error) => 'refused')")
    assert refused == "refused"
    assert any("Content Security Policy" in complaint for complaint in seen.complaints)


def test_texts_from_outside_do_not_run(visit):
    seen = visit(hostile(make_report_context(geometry=None, feature_names=["x"] * 30)), hostile(make_report_context()))
    seen.page.on("dialog", lambda dialog: seen.complaints.append(dialog.message))
    seen.hover(0.5)
    seen.page.wait_for_timeout(100)
    assert seen.complaints == []
    assert HOSTILE in seen.page.locator("table.figures").first.inner_text()


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
@pytest.mark.parametrize("kind", ["pictures", "names"])
def test_page_can_be_read(visit, kind, width, scheme):
    seen = visit(STORIES[kind], width=width, scheme=scheme)
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
    assert seen.page.evaluate(UNREADABLE) == []


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_curves_are_there(visit, width, scheme):
    seen = visit(make_report_context(), width=width, scheme=scheme)
    figures = seen.page.locator("figure.chart")
    assert figures.count() == 7
    painted = [figures.nth(number).evaluate(PAINTED) for number in range(7)]
    assert min(painted) > 100


def test_hovering_shows_values(visit):
    context = make_report_context()
    seen = visit(context)
    assert seen.page.locator(".tooltip").first.is_hidden()
    assert seen.hover(0.99) == "1.5 at 10 s"  # the last line of the history
    assert seen.hover(0.01) == "11 at 500 ms"
    assert re.fullmatch(r"[\d.]+ % · atom \d+", seen.hover(0.02, chart=3))


def test_dragging_zooms_and_a_double_click_shows_all(visit):
    seen = visit(make_report_context(history=make_history(200)))
    before = seen.hover(0.02)
    seen.drag(0.5, 0.75)
    zoomed = seen.hover(0.02)
    assert zoomed != before
    assert float(re.search(r"([\d.]+) s$", zoomed)[1]) == pytest.approx(50, rel=0.1)
    seen.page.mouse.dblclick(*[seen.page.locator(".u-over").first.bounding_box()[axis] + 50 for axis in "xy"])
    assert seen.hover(0.02) == before


def test_buttons_choose_what_the_objective_is_drawn_against(visit):
    seen = visit(make_report_context())
    seen.page.get_by_role("button", name="rows seen").click()
    assert seen.hover(0.99) == "1.5 at 4,000"
    seen.page.get_by_role("button", name="bytes read").click()
    assert seen.hover(0.99) == "1.5 at 1.6 MB"
    pressed = seen.page.locator('button[aria-pressed="true"]').all_inner_texts()
    assert pressed == ["bytes read"]


def test_logarithmic_axes_draw(visit):
    seen = visit(make_report_context())
    for name in ("log x", "log y"):
        seen.page.get_by_role("button", name=name).click()
        assert seen.page.locator("figure.chart").first.evaluate(PAINTED) > 100
    assert seen.complaints == []


def test_several_runs_are_named_and_hover_together(visit):
    slow = replace(make_report_context(title="slow"), history=make_history(12))
    seen = visit(make_report_context(title="fast"), slow)
    assert seen.page.locator("ul.legend li").all_inner_texts() == ["fast", "slow"]
    lines = seen.hover(0.99).splitlines()
    assert lines == ["fast: 1.5 at 10 s", "slow: 1.833 at 6 s"]


def test_charts_that_are_unfolded_get_their_width(visit):
    seen = visit(make_report_context(title="first"), make_report_context(title="second"))
    seen.page.locator("#usage summary").nth(1).click()
    chart = seen.page.locator("#usage details").nth(1).locator("figure.chart").first
    seen.page.wait_for_timeout(100)
    assert chart.locator(".uplot").bounding_box()["width"] == pytest.approx(chart.bounding_box()["width"], abs=2)


class Running:
    """The page of a running fit that refreshes only once an hour, since tests are slower than its usual refresh."""

    def __init__(self, visit, path, monkeypatch):
        monkeypatch.setattr(page_module, "REFRESH_SECONDS", 3600)
        self.path, self.context = path, make_report_context(stopped_by=None)
        self.seen = visit(self.context)
        self.page = self.seen.page
        self.page.get_by_role("button", name="pause").click()
        monkeypatch.setattr(page_module, "REFRESH_SECONDS", 0.2)
        write_report(self.path, self.context)
        self.page.reload()

    def finish(self):
        write_report(self.path, replace(self.context, stopped_by="n_epochs"))

    def let_go(self):
        self.page.evaluate("document.getElementById('pause').click()")  # the mouse stays where it is

    def wait_for_the_end(self):
        self.page.wait_for_selector(".badge.done", timeout=20_000)


@pytest.fixture
def running(visit, monkeypatch, tmp_path):
    return Running(visit, tmp_path / "report.html", monkeypatch)


def test_page_of_a_running_fit_refreshes_and_stays_where_it_was(running):
    running.page.get_by_role("button", name="rows seen").click()
    running.page.mouse.move(0, 0)
    running.page.evaluate("scrollTo(0, 2000)")
    before = running.page.evaluate(PLACE)
    running.finish()
    running.let_go()
    running.wait_for_the_end()
    running.page.wait_for_timeout(200)
    assert running.page.evaluate("scrollY") > 1500
    assert running.page.evaluate(PLACE) == pytest.approx(before, abs=5)  # though more came above it
    assert running.page.locator('button[aria-pressed="true"]').all_inner_texts() == ["rows seen"]


def test_refreshing_can_be_paused(running):
    running.finish()
    running.page.wait_for_timeout(1000)
    assert running.page.locator(".badge.running").count() == 1
    running.let_go()
    running.wait_for_the_end()


def test_a_zoomed_page_waits_with_refreshing(running):
    running.seen.drag(0.5, 0.75)
    running.page.mouse.move(0, 0)
    running.finish()
    running.let_go()
    running.page.wait_for_timeout(1000)
    assert running.page.locator(".badge.running").count() == 1
    box = running.page.locator(".u-over").first.bounding_box()
    running.page.mouse.dblclick(box["x"] + 50, box["y"] + 50)
    running.page.mouse.move(0, 0)
    running.wait_for_the_end()


def test_charts_follow_the_colors_of_the_system(visit):
    seen = visit(make_report_context())
    seen.page.emulate_media(color_scheme="dark")
    assert seen.page.locator("figure.chart").first.evaluate(PAINTED) > 100
