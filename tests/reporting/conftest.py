"""A real browser for the page, and banks to make it of."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def chromium() -> str:
    """Return the browser's program, which DREAM_CHROMIUM may name; skips where there is none."""
    place = os.environ.get("DREAM_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if place is None:
        pytest.skip(f"BROWSER TESTS SKIPPED: none of {', '.join(NAMES)} is here; DREAM_CHROMIUM may name one")
    return place


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real Chromium, one per module."""
    driver = pytest.importorskip("playwright.sync_api", reason="BROWSER TESTS SKIPPED: playwright is missing")
    place = chromium()
    with driver.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=place, args=ARGUMENTS)
        yield opened
        opened.close()
