"""The file itself: escaping, the policy and its digests, what a shell reads, and that no file is lost."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
import unicodedata
from html.parser import HTMLParser
from pathlib import Path

import pytest

from shared_core import MemoryBank
from shared_core.errors import ConfigError, MissingExtraError
from shared_core.reporting import ReportData, data_json, gather_report, live_page_html, page_html, write_page
from shared_core.reporting.shell import argument, command_line, place_of, shell_word
from tests.conftest import OpenBank
from tests.reporting.hostile import fill_hostile

PLACE = ["./chroma", "--collection", "notes"]


class Parts(HTMLParser):
    """Elements of a page, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[str] = []
        self._within = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._within = tag in {"script", "style"}
        if self._within:
            self.inside.append("")

    def handle_endtag(self, tag: str) -> None:
        self._within = False

    def handle_data(self, data: str) -> None:
        if self._within:
            self.inside[-1] += data


@pytest.fixture
def hostile(open_bank: OpenBank) -> ReportData:
    bank: MemoryBank = open_bank()
    fill_hostile(bank)
    return gather_report(bank, place=PLACE)


def test_nothing_of_a_memory_becomes_markup(hostile: ReportData) -> None:
    text = page_html(hostile)
    page = Parts(text)
    names = [name for name, _ in page.tags]
    assert names.count("script") == 2
    assert not {"img", "i", "b", "iframe", "link", "object"} & set(names)
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    _, data, _ = page.inside
    assert json.loads(data) == json.loads(json.dumps(hostile.to_dict()))
    # an editor shows the file in the order in which it is
    unseen = {c for c in text if unicodedata.category(c) in {"Cc", "Cf", "Cs"}} - {"\n", "\u200c", "\u200d"}
    assert not unseen
    text.encode()


def test_the_policy_allows_exactly_the_pages_own_script_and_style(hostile: ReportData) -> None:
    page = Parts(page_html(hostile))
    policy = next(a["content"] for n, a in page.tags if n == "meta" and "content" in a and "http-equiv" in a)
    rules = dict(rule.split(" ", 1) for rule in str(policy).split("; "))
    style, _, script = page.inside
    assert rules["default-src"] == "'none'"
    assert "connect-src" not in rules
    for name, text in (("style-src", style), ("script-src", script)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert rules[name] == f"'sha256-{digest}'"
    assert rules["require-trusted-types-for"] == "'script'"
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", script
    )
    assert not re.search(r"https?://", page_html(hostile).replace(data_json(hostile), ""))


def test_title_and_sentence_are_escaped(hostile: ReportData) -> None:
    from dataclasses import replace

    bank = replace(hostile.bank, collection="</title><script>x</script>")
    text = page_html(replace(hostile, bank=bank))
    assert "</title><script>x" not in text
    assert "&lt;/title&gt;&lt;script&gt;x" in text


def test_a_live_page_has_no_data_and_may_ask_its_server() -> None:
    text = live_page_html("/api/report", scripts=["globalThis.added = 1;"], styles=["p { margin: 0 }"])
    page = Parts(text)
    assert (
        "script",
        {"id": "report-data", "type": "application/json", "data-src": "/api/report"},
    ) in page.tags
    assert "connect-src &#39;self&#39;" in text
    assert page.inside[1] == ""
    assert page.inside[2].endswith("globalThis.added = 1;")
    for bad in ("https://elsewhere/report", "//elsewhere/report", "report"):
        with pytest.raises(ConfigError, match="path on the page's own server"):
            live_page_html(bad)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("m42", "m42"),
        ("it's", "'it'\"'\"'s'"),
        ("$(rm x)", "'$(rm x)'"),
        ("a\nb", "$'a\\x0ab'"),
        ("\x1b[31m'\\", "$'\\x1b[31m\\'\\\\'"),
        ("שלום", "'שלום'"),
        ("a\0b", ""),
        ("\ud800", ""),
    ],
)
def test_an_id_is_one_word_of_a_shell(text: str, word: str) -> None:
    assert shell_word(text) == word
    if word:
        said = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True).stdout
        assert said.decode() == text


def test_a_command_line_is_whole() -> None:
    assert argument("-x") == "-- -x"
    line = command_line("restore", place_of(["/my dir", "--collection", "n"]), argument("m1"))
    assert line == "dream restore '/my dir' --collection n m1"


def test_a_file_that_is_there_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_page("one", path)
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(ConfigError, match="exists: give --overwrite"):
        write_page("two", path)
    assert path.read_text() == "one"
    write_page("two", path, overwrite=True)
    assert path.read_text() == "two"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(ConfigError, match="is a directory"):
        write_page("x", tmp_path)
    with pytest.raises(ConfigError, match="there is no directory"):
        write_page("x", tmp_path / "none" / "report.html")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="exists"):
        write_page("x", tmp_path / "dangling")


def test_without_jinja_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'dream-memory\[report\]'"):
        live_page_html("/api")
