"""The report as one HTML page that needs nothing outside itself.

Puts data, style and script into the template. Escaping is done here once: text in HTML by Jinja2, the data by
JSON whose letters cannot end its block; the page's script makes text nodes only. The page's own policy allows
exactly its script and style, by their digests, and no connection.

Knows files and Jinja2 (extra ``report``); knows no bank.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from shared_core.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from shared_core.reporting.data import ReportData

SCRIPTS = ("words.js", "memories.js", "history.js", "graph.js", "page.js")
"""In the order in which they stand in the page, as one script."""
POLICY = (
    "default-src 'none'",
    "base-uri 'none'",
    "form-action 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
)
PRIVATE = 0o600
_BOUND = re.compile(
    "[<>&\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)
"""What could end the data's block, is no text, or would turn round what an editor shows of the file."""


def page_html(data: ReportData) -> str:
    """Return a page that holds its data.

    Raises:
        MissingExtraError: Jinja2 is not installed.
    """
    return _page(
        title=f"{data.bank.collection}: memory report",
        bank=data.bank.collection,
        sentence=data.headline.sentence,
        data=data_json(data),
        source=None,
    )


def live_page_html(source: str, *, scripts: Sequence[str] = (), styles: Sequence[str] = ()) -> str:
    """Return the same page without data, for a server: it fetches them when it is opened.

    Args:
        source: Path on the page's own server that answers with ``ReportData.to_dict()`` as JSON.
        scripts: Further JavaScript, run behind the page's own and before it starts.
        styles: Further CSS, behind the page's own.

    Raises:
        MissingExtraError: Jinja2 is not installed.
        ConfigError: The source is not a path.
    """
    if not source.startswith("/") or source.startswith("//"):
        raise ConfigError(f"source {source!r} must be a path on the page's own server, such as '/api/report'")
    return _page(
        title="Memory report",
        bank="",
        sentence="Reading the memory …",
        data="",
        source=source,
        scripts=scripts,
        styles=styles,
    )


def data_json(data: ReportData) -> str:
    """Return the data as JSON that is safe inside a script element, and reads as it is in any editor."""
    text = json.dumps(data.to_dict(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _BOUND.sub(lambda found: _escape(found[0]), text)


def write_page(text: str, path: Path, *, overwrite: bool = False) -> None:
    """Write a page whole or not at all; a file that is there is left alone unless told otherwise.

    Raises:
        ConfigError: The file exists, or cannot be written.
    """
    if path.is_dir():
        raise ConfigError(f"--output {path} is a directory: name a file, such as {path / 'report.html'}")
    if not path.parent.is_dir():
        raise ConfigError(f"--output {path}: there is no directory {path.parent}; make it first")
    if path.exists() and not overwrite:
        raise ConfigError(f"--output {path} exists: give --overwrite to replace it, or another name")
    try:
        if overwrite:
            _replace(path, text)
        else:
            _create(path, text)
    except FileExistsError:
        raise ConfigError(f"--output {path} exists: give --overwrite to replace it") from None
    except OSError as error:
        raise ConfigError(f"--output {path} cannot be written: {error}") from None


def _create(path: Path, text: str) -> None:
    # it holds the texts of memories: for its owner only
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "wb") as file:
        try:
            file.write(text.encode())
        except OSError:
            path.unlink(missing_ok=True)
            raise


def _replace(path: Path, text: str) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


def _page(
    *,
    title: str,
    bank: str,
    sentence: str,
    data: str,
    source: str | None,
    scripts: Sequence[str] = (),
    styles: Sequence[str] = (),
) -> str:
    try:
        from jinja2 import Environment
        from markupsafe import Markup
    except ImportError:
        raise MissingExtraError("jinja2", "report") from None
    script = "\n".join([*map(_part, SCRIPTS), *scripts])
    style = "\n".join([_part("page.css"), *styles])
    connect = [] if source is None else ["connect-src 'self'"]
    policy = [*POLICY, f"script-src {_digest(script)}", f"style-src {_digest(style)}", *connect]
    template = Environment(autoescape=True).from_string(_part("page.html"))
    # our own files, and JSON without < and &: marked as markup they stay as their digests say
    return template.render(
        policy="; ".join(policy),
        title=title,
        bank=bank,
        sentence=sentence,
        source=source,
        data=Markup(data),  # noqa: S704
        script=Markup(script),  # noqa: S704
        style=Markup(style),  # noqa: S704
    )


@cache
def _part(name: str) -> str:
    return (files("shared_core.reporting") / "page" / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    found = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{found}'"


def _escape(letter: str) -> str:
    code = ord(letter)
    if code < 0x10000:
        return f"\\u{code:04x}"
    high, low = divmod(code - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"
