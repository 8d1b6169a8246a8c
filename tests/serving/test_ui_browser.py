"""``dream ui`` as a person uses it: the real command in a process, the page in a real Chromium."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from shared_core import MemoryBank, SentenceTransformerEmbedder
from tests.serving.test_application import PAGES

DREAM = Path(sys.executable).with_name("dream")
HOSTILE = "<img src=x onerror=window.hacked=1>"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, embedder: SentenceTransformerEmbedder) -> Path:
    place = tmp_path_factory.mktemp("ui") / "chroma"
    with MemoryBank.open(place, "notes", create=True, embedder=embedder) as bank:
        bank.add([*PAGES, HOSTILE], ids=[*(f"m{n}" for n in range(len(PAGES))), "hostile"])
        bank.set_weights({"m1": 0.2, "hostile": 0.3})
    return place


@pytest.fixture(scope="module")
def address(place: Path) -> Iterator[str]:
    command = [DREAM, "ui", place, "--collection", "notes", "--embedder", "minilm", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        assert line, server.communicate()[1]
        yield json.loads(line)["address"]
        server.send_signal(signal.SIGINT)
        _out, err = server.communicate(timeout=30)
        assert server.returncode in {0, 130}
        assert "Traceback" not in err
        # no log tells the token
        assert "token=" not in err


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1100, "height": 900}, reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(60_000)
    said: list[str] = []
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"error: {error}"))
    page.on(
        "request",
        lambda asked: (
            None if asked.url.startswith(address.split("/?", maxsplit=1)[0]) else said.append(asked.url)
        ),
    )
    page.goto(address)
    page.wait_for_selector("html[data-live=yes]")
    yield page
    context.close()
    assert said == []


def test_undo_by_mouse_and_redo_by_keyboard(page: Any, place: Path) -> None:
    run = page.locator("#timeline .run.reweight").first
    run.locator("button.act").click()
    page.wait_for_selector("#ui-said:has-text('Undone')")
    with MemoryBank.open(place, "notes") as bank:
        assert bank.weights(["m1", "hostile"]).tolist() == [1.0, 1.0]
    # an undo can be undone: by keyboard only
    redo = page.locator("#timeline .run.undo").first.locator("button.act")
    redo.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#timeline .run.undo >> nth=1")
    with MemoryBank.open(place, "notes") as bank:
        assert bank.weights(["m1"]).tolist() == [0.2]


def test_restore_a_suspect_whose_text_is_hostile(page: Any, place: Path) -> None:
    suspect = page.locator("#suspects .suspect", has_text="onerror")
    suspect.locator("button.act").click()
    page.wait_for_selector("#ui-said:has-text('full weight')")
    page.wait_for_selector("#suspects .suspect:has-text('onerror')", state="detached")
    assert page.evaluate("window.hacked") is None
    with MemoryBank.open(place, "notes") as bank:
        assert (bank.weights(["hostile"]).tolist(), bank.trusted()) == ([1.0], ["hostile"])
    page.select_option("#filter", "trusted")
    row = page.locator("#memory-list .memory", has_text="onerror")
    row.locator("summary").click()
    row.locator("button.act", has_text="again").click()
    page.wait_for_selector("#ui-said:has-text('judges it as any other')")
    with MemoryBank.open(place, "notes") as bank:
        assert bank.trusted() == []


def test_a_change_by_another_process_is_seen(page: Any, place: Path) -> None:
    with MemoryBank.open(place, "notes") as bank:
        bank.set_weights({"m3": 0.01})
    page.wait_for_selector("#suspects .suspect:has-text('Marta')")


def test_look_for_repairs_and_accept_one(page: Any, place: Path) -> None:
    page.get_by_role("button", name="Look for repairs").click()
    page.wait_for_selector("#proposals .proposal")
    with MemoryBank.open(place, "notes") as bank:
        assert not [run for run in bank.runs() if run.kind == "cycle"]
    page.locator("#proposals .proposal").first.get_by_role("button", name="Accept").click()
    page.wait_for_selector("#proposals :text('1 written')")
    page.wait_for_selector("#timeline .run.cycle")
    with MemoryBank.open(place, "notes") as bank:
        assert [run.kind for run in bank.runs() if run.kind in {"cycle", "repair"}] == ["repair", "cycle"]


def test_it_is_accessible_and_fits_a_phone(page: Any) -> None:
    found = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]})
    assert found.violations_count == 0, found.generate_report()
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_the_token_is_needed(page: Any, address: str) -> None:
    bare = page.context.request.get(address.split("?", maxsplit=1)[0])
    assert bare.status == 403
