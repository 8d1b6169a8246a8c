"""Take the pictures of docs/report.md into a folder; ``make screenshots``.

The memory is the bundled one with its attack, and the conversation of the case study; swept, then dreamt.
"""

from __future__ import annotations

import io
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from shared_core import MemoryBank, packaged_embedder
from shared_core.agents import DreamCycle
from shared_core.bank.conversation import ConversationMemory
from shared_core.evaluation import CachedEmbedder, bundled_case, fill_collection
from shared_core.reporting import gather_report, page_html
from tests.agents import nut_story
from tests.reporting.conftest import ARGUMENTS, chromium

NAME = "agent-memory"
LATER = 3 * 86_400
"""Seconds between the sweep and the pictures."""
COLOURS = 256
LARGEST = 120_000
"""Bytes of a picture."""
WIDE = {"width": 1100, "height": 820}
PICTURES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "report-light": ("light", "", {"viewport": WIDE}),
    "report-graph-dark": ("dark", "graph", {"viewport": WIDE}),
    "report-repairs-light": ("light", "repairs", {"viewport": {"width": 1100, "height": 560}}),
    "report-phone-light": ("light", "suspects", {"viewport": {"width": 360, "height": 740}}),
}
"""Colour scheme, section at the top, and options of the browser by the picture's name."""


def page_of_the_sample(folder: Path) -> str:
    """Return the page of the sample memory after a sweep and a dream."""
    embedder = CachedEmbedder(packaged_embedder())
    with MemoryBank.open(folder / "chroma", NAME, create=True, embedder=embedder, value_key="value") as bank:
        fill_collection(bank, bundled_case())
        ConversationMemory(bank).add_pages(nut_story.pages())
        bank.sweep()
        DreamCycle(bank).run()
        place = ["./chroma", "--collection", NAME]
        return page_html(gather_report(bank, place=place, now=time.time() + LATER))


def small(picture: bytes) -> bytes:
    """Return a picture that is small enough to be kept with the sources, with fewer colours where it must."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    for kept in (image, image.quantize(COLOURS, dither=Image.Dither.NONE)):
        file = io.BytesIO()
        kept.save(file, "PNG", optimize=True)
        if file.tell() < LARGEST:
            break
    return file.getvalue()


def take(page: Path, output: Path) -> None:
    """Write every picture of a page into a folder."""
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        for name, (scheme, section, options) in PICTURES.items():
            context = browser.new_context(color_scheme=scheme, reduced_motion="reduce", **options)
            opened = context.new_page()
            opened.goto(page.as_uri())
            opened.wait_for_selector("html[data-ready]")
            if section:
                opened.evaluate("id => document.getElementById(id).scrollIntoView()", section)
            opened.wait_for_timeout(300)
            (output / f"{name}.png").write_bytes(small(opened.screenshot()))
            context.close()
        browser.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        written = Path(temporary) / "report.html"
        written.write_text(page_of_the_sample(Path(temporary)), encoding="utf-8")
        take(written, Path(sys.argv[1]))
