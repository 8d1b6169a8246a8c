"""The page in a real Chromium, from disk: no network, nothing hostile runs, keyboard, phone, contrast."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared_core import MemoryBank
from shared_core.reporting import gather_report, live_page_html, page_html
from shared_core.reporting.data import ReportData
from tests.conftest import unit_rows
from tests.reporting.hostile import LONG, fill_hostile

PLACE = ["./chroma", "--collection", "notes"]
NODES = 1000
AXE = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> ReportData:
    with MemoryBank.open(tmp_path_factory.mktemp("hostile"), "notes", create=True) as bank:
        fill_hostile(bank)
        return gather_report(bank, place=PLACE)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> ReportData:
    """A thousand memories about forty topics, some doubted."""
    rng = np.random.default_rng(1)
    topics = unit_rows(rng, 40, 32)
    topic = rng.integers(0, 40, NODES)
    vectors = topics[topic] + 0.12 * rng.standard_normal((NODES, 32)).astype(np.float32)
    texts = [f"memory {i} of topic {t}, and what else was said of it" for i, t in enumerate(topic.tolist())]
    with MemoryBank.open(tmp_path_factory.mktemp("large"), "notes", create=True) as bank:
        bank.add(texts, ids=[f"m{i}" for i in range(NODES)], embeddings=vectors.astype(np.float32))
        bank.set_weights({f"m{i}": 0.05 for i in range(0, NODES, 25)})
        return gather_report(bank, place=PLACE)


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Open a report from disk; fails at the end where the page complained, or asked for more than itself."""
    contexts: list[Any] = []
    said: list[str] = []

    def open_page(data: ReportData, **options: Any) -> Any:
        path = tmp_path / "report.html"
        path.write_text(page_html(data), encoding="utf-8")
        usual = {"viewport": {"width": 1100, "height": 900}, "reduced_motion": "reduce"}
        context = browser.new_context(**{**usual, **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"error: {error}"))
        page.on("request", lambda asked: said.append(asked.url) if asked.url != path.as_uri() else None)
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []


def complaints(page: Any) -> list[str]:
    """Return what axe finds against WCAG 2.2 AA."""
    from axe_playwright_python.base import AXE_FILE_PATH

    page.evaluate(Path(AXE_FILE_PATH).read_text(encoding="utf-8"))
    found = page.evaluate("tags => axe.run(document, { runOnly: tags, resultTypes: ['violations'] })", AXE)
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in found["violations"]
        for node in one["nodes"]
    ]


def open_all(page: Any) -> None:
    """Show everything that waits to be asked for."""
    while (more := page.locator("button.more")).count():
        more.first.click()
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    page.wait_for_timeout(50)


def test_hostile_texts_are_shown_and_never_run(opened: Open, hostile: ReportData) -> None:
    page = opened(hostile)
    open_all(page)
    page.focus("#canvas")
    for _ in range(3):
        page.keyboard.press("n")
    assert page.evaluate("globalThis.hacked") is None
    assert page.evaluate("document.scripts.length") == 2
    assert (
        page.evaluate(
            "document.querySelectorAll('main img, main b, main i, main iframe, main script').length"
        )
        == 0
    )
    text = page.inner_text("main")
    for shown in (
        "<script>globalThis.hacked = 'script'</script>",
        "</script><script>globalThis.hacked = 'closing'</script>",
        "<img src=x onerror=\"globalThis.hacked = 'image'\"> &lt;b&gt; &amp;",
        "{{ 7 * 7 }} ${7 * 7} {% include 'x' %}",
        "rewritten <script>globalThis.hacked = 'update'</script>",
        "<b>bold</b>",
        "<i>key</i>",
        "👩‍👩‍👧‍👦 🇩🇪 👍🏽 café مرحبا بالعالم שלום 汉字",
        "beforeU+0000after",
        "U+202EannAU+202C",
        "waU+200Bter",
        "U+E006F",
        "U+001B[31m",
        "nextU+2028line",
        f"{LONG:,} characters; the first 2,000 are shown.",
    ):
        assert shown in text
    # what would turn round the line is in no text of the page
    assert not page.evaluate("/[\\u202a-\\u202e\\u2066-\\u2069\\u200b\\u0000]/.test(document.body.innerText)")


def test_the_policy_stops_what_would_run_or_reach_out(
    browser: Any, hostile: ReportData, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    path.write_text(page_html(hostile), encoding="utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]")
    with socket.socket() as outside:
        outside.bind(("127.0.0.1", 0))
        outside.listen()
        outside.setblocking(False)
        tried = page.evaluate(
            """async (there) => {
                const failed = [];
                const attempt = async (name, act) => { try { await act(); } catch { failed.push(name); } };
                await attempt("markup", () => { document.body.innerHTML = "<p>"; });
                await attempt("fetch", () => fetch(there));
                await attempt("source", () => { document.createElement("script").src = there; });
                const image = new Image();
                image.src = there;
                await attempt("image", () => image.decode());
                const box = document.createElement("div");
                await attempt("handler", () => box.setAttribute("onclick", "globalThis.hacked = 1"));
                return failed;
            }""",
            f"http://127.0.0.1:{outside.getsockname()[1]}/x.png",
        )
        # nobody called
        with pytest.raises(BlockingIOError):
            outside.accept()
    assert tried == ["markup", "fetch", "source", "image", "handler"]
    page.close()


def test_search_finds_marks_and_counts(opened: Open, hostile: ReportData) -> None:
    page = opened(hostile)
    rows = page.locator("#memory-list details")
    page.fill("#search", "BOLD id")
    assert page.inner_text("#found").startswith("1 found among ")
    assert rows.count() == 1
    rows.first.locator("summary").click()
    assert [one.lower() for one in rows.first.locator("mark").all_inner_texts()].count("bold") >= 1
    # invisible letters hide no word
    page.fill("#search", "water")
    assert rows.count() == 1
    page.fill("#search", "(")
    assert rows.count() >= 1
    page.fill("#search", "no such thing anywhere")
    assert page.inner_text("#found").startswith("0 found among ")
    page.fill("#search", "")
    for kind, holds in (
        ("suspect", lambda m: m.suspect),
        ("derived", lambda m: m.derived),
        ("waiting", lambda m: m.waiting),
    ):
        page.select_option("#filter", kind)
        assert page.inner_text("#found").startswith(f"{sum(map(holds, hostile.memories))} found among ")


def test_the_keyboard_alone_reaches_everything(opened: Open, hostile: ReportData) -> None:
    page = opened(hostile)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"

    def until(test: str) -> None:
        for _ in range(80):
            page.keyboard.press("Tab")
            if page.evaluate(f"(one => {test})(document.activeElement)"):
                assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
                return
        pytest.fail(f"the keyboard does not reach {test}")

    until("one.matches('#suspect-list .copy')")
    line = page.evaluate("document.activeElement.parentNode.querySelector('code').textContent")
    assert line.startswith("dream restore ./chroma --collection notes ")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.keyboard.press("Enter")
    page.locator("button:focus", has_text="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == line
    assert page.inner_text("#announce").startswith("Copied: Give ")
    until("one.id === 'search'")
    page.keyboard.type("letters")
    until("one.matches('#memory-list summary')")
    page.keyboard.press("Enter")
    page.locator("#memory-list details[open] blockquote").first.wait_for()
    until("one.id === 'zoom-in'")
    page.keyboard.press("Enter")
    assert page.inner_text("#zoom-level") == "Zoom 140 %"
    until("one.id === 'canvas'")
    page.keyboard.press("+")
    assert page.inner_text("#zoom-level") == "Zoom 196 %"
    page.keyboard.press("0")
    assert page.inner_text("#zoom-level") == "Zoom 100 %"
    page.keyboard.press("n")
    first = page.get_attribute("#canvas", "data-picked")
    assert first in {one.id for one in hostile.memories}
    page.keyboard.press("n")
    assert page.get_attribute("#canvas", "data-picked") != first
    page.keyboard.press("p")
    assert page.get_attribute("#canvas", "data-picked") == first
    page.keyboard.press("Escape")
    assert page.inner_text("#picked") == ""
    until("one.matches('#graph-table summary')")
    page.keyboard.press("Enter")
    page.locator("#graph-table tbody tr").first.wait_for()
    assert page.locator("#graph-table tbody tr").count() == len(hostile.graph.nodes)
    until("one.matches('#run-list .copy')")
    until("one.matches('#repair-list .copy')")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1100), ("dark", 360)])
def test_contrast_names_and_roles(opened: Open, hostile: ReportData, scheme: str, width: int) -> None:
    page = opened(hostile, color_scheme=scheme, viewport={"width": width, "height": 800})
    page.focus("#canvas")
    page.keyboard.press("n")
    page.fill("#search", "memory")
    page.evaluate(
        "[...document.querySelectorAll('details')].slice(0, 4).forEach(one => { one.open = true; })"
    )
    page.locator("#graph-table").evaluate("one => { one.open = true; }")
    page.locator("#graph-table tbody tr").first.wait_for()
    assert complaints(page) == []
    light = page.evaluate(
        "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0] > 128"
    )
    assert light == (scheme == "light")


def test_a_phone_never_scrolls_sideways(opened: Open, hostile: ReportData) -> None:
    page = opened(hostile, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    open_all(page)
    page.focus("#canvas")
    page.keyboard.press("n")
    wide = page.evaluate(
        """() => [document.documentElement.scrollWidth, ...[...document.querySelectorAll("body *")]
            .filter((one) => one.getBoundingClientRect().right > 361 && !one.closest(".wide, .unseen, .line"))
            .map((one) => `${one.tagName}.${one.className} ${one.getBoundingClientRect().right}`)]"""
    )
    assert wide == [360]


def test_motion_is_reduced_when_asked(opened: Open, hostile: ReportData) -> None:
    for wish, behaviour in (("reduce", "auto"), ("no-preference", "smooth")):
        page = opened(hostile, reduced_motion=wish)
        assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == behaviour


def test_a_thousand_memories_are_drawn_and_can_be_read(
    opened: Open, large: ReportData, record_property: Callable[[str, object], None]
) -> None:
    assert len(large.graph.nodes) == NODES
    began = time.perf_counter()
    page = opened(large)
    seconds = time.perf_counter() - began
    assert page.get_attribute("#canvas", "data-nodes") == str(NODES)
    page.evaluate("document.getElementById('graph').scrollIntoView()")
    page.wait_for_timeout(100)
    assert int(page.get_attribute("#canvas", "data-labels")) >= 8
    # the canvas holds ink
    used = page.evaluate(
        """() => { const c = document.getElementById("canvas");
            const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
            let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n / (d.length / 4); }"""
    )
    assert 0.02 < used < 0.6
    drawing = page.evaluate(
        """async () => { const began = performance.now();
            for (let i = 0; i < 20; i += 1) { document.getElementById("zoom-in").click();
                await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))); }
            return (performance.now() - began) / 20; }"""
    )
    # enlarged, marks stand far enough apart to be hit one by one
    places = np.array([one[1:] for one in large.graph.nodes])
    apart = np.linalg.norm(places[:, None] - places, axis=2)
    np.fill_diagonal(apart, np.inf)
    assert np.percentile(apart.min(axis=1), 5) > 8
    record_property("open_seconds", round(seconds, 2))
    record_property("zoom_step_ms", round(drawing))


def test_a_mark_is_picked_by_mouse_and_dragging_moves(opened: Open, large: ReportData) -> None:
    page = opened(large)
    page.evaluate("document.getElementById('canvas').scrollIntoView()")
    box = page.locator("#canvas").bounding_box()
    across, along = (box["width"] - 80) / 1000, (box["height"] - 80) / 1000
    across, along = min(across, 2 * along), min(along, 2 * across)
    memory_id, x, y = large.graph.nodes[0]
    at = (
        box["x"] + box["width"] / 2 + (x - 500) * across,
        box["y"] + box["height"] / 2 + (y - 500) * along,
    )
    page.mouse.click(*at)
    assert page.get_attribute("#canvas", "data-picked") == memory_id
    assert memory_id in page.inner_text("#picked")
    page.evaluate("document.getElementById('canvas').scrollIntoView()")
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 220, box["y"] + 120, steps=4)
    page.mouse.up()
    # a drag picks nothing
    assert page.get_attribute("#canvas", "data-picked") == memory_id


def test_a_server_can_feed_the_same_page(browser: Any, hostile: ReportData) -> None:
    """What the page's own server answers is shown, and its script gives the page something to do."""
    script = (
        "globalThis.did = []; dreamPage.actions.restore = (id) => globalThis.did.push(id);"
        "globalThis.again = (data) => dreamPage.render(data);"
    )
    served = {
        "/": ("text/html", live_page_html("/api/report", scripts=[script])),
        "/api/report": ("application/json", json.dumps(hostile.to_dict())),
    }
    page = browser.new_page()

    def answer(route: Any) -> None:
        path = route.request.url.removeprefix("http://report.invalid")
        kind, body = served.get(path, ("text/plain", ""))
        route.fulfill(status=200 if body else 404, content_type=f"{kind}; charset=utf-8", body=body)

    page.route("**/*", answer)
    page.goto("http://report.invalid/")
    page.wait_for_selector("html[data-ready]")
    page.locator("#suspect-list button.act").first.click()
    assert page.evaluate("globalThis.did") == [hostile.suspects[0].id]
    assert page.evaluate("globalThis.hacked") is None
    fewer = {**hostile.to_dict(), "suspects": []}
    page.evaluate("data => globalThis.again(data)", json.loads(json.dumps(fewer)))
    assert "None yet: no sweep has looked" in page.inner_text("#suspect-list")
    other = {**fewer, "format": "dream-report/9"}
    assert page.evaluate(
        "data => { try { globalThis.again(data); } catch (e) { return e.message; } }",
        json.loads(json.dumps(other)),
    ).startswith("the data is of format dream-report/9")
    page.close()
