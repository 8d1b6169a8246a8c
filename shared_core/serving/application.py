"""The web application: the report's page, its data as JSON, and undo, restore and decisions about repairs.

Everything it does, the bank does under its own locks and journal; an error of ours becomes one line of JSON.
Knows HTTP (Starlette) and no socket: ``dream ui`` serves it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from shared_core.errors import BankLockedError, ConfigError, DreamError, JournalError, MemoryNotFoundError
from shared_core.reporting import ReportLimits, gather_report, live_page_html
from shared_core.reporting.html_page import data_json
from shared_core.serving.guarding import Guard, refused

if TYPE_CHECKING:
    from starlette.requests import Request

    from shared_core.bank import MemoryBank, Run
    from shared_core.serving.proposals import Proposals

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
STATUS = ((MemoryNotFoundError, 404), (JournalError, 409), (BankLockedError, 423), (ConfigError, 400))
"""HTTP status by kind of error; any other of ours is 503: the bank cannot be reached."""


def make_application(
    bank: MemoryBank,
    token: str,
    *,
    hosts: Sequence[str] = LOOPBACK,
    proposals: Proposals | None = None,
    place: Sequence[str] | None = None,
    limits: ReportLimits | None = None,
) -> Starlette:
    """Return the application of one bank.

    Args:
        bank: The bank, or one tenant's view of it; the caller closes it.
        token: Whoever has it may read and change the bank.
        hosts: Names by which the server may be called.
        proposals: Where repairs are proposed and decided; None: the page has no such part.
        place: As for ``gather_report``.
        limits: As for ``gather_report``.

    Raises:
        ConfigError: The token is empty.
        MissingExtraError: Jinja2 is not installed.
    """
    desk = _Desk(bank, proposals, place, limits)
    page = live_page_html(f"/api/report?token={token}", scripts=[_part("ui.js")], styles=[_part("ui.css")])

    async def home(_request: Request) -> Response:
        return HTMLResponse(page)

    routes = [
        Route("/", home),
        Route("/api/report", _reading(desk.report)),
        Route("/api/version", _reading(desk.version)),
        Route("/api/undo", _changing(desk.undo), methods=["POST"]),
        Route("/api/restore", _changing(desk.restore), methods=["POST"]),
        Route("/api/distrust", _changing(desk.distrust), methods=["POST"]),
    ]
    if proposals is not None:
        routes += [
            Route("/api/propose", _changing(partial(_propose, proposals)), methods=["POST"]),
            Route("/api/decide", _changing(partial(_decide, proposals)), methods=["POST"]),
        ]
    guard = Middleware(BaseHTTPMiddleware, dispatch=Guard(token, hosts))
    return Starlette(routes=routes, middleware=[guard], exception_handlers={DreamError: _explained})


class _Desk:
    """What a request may ask of the bank; each method takes its JSON and returns JSON."""

    def __init__(
        self,
        bank: MemoryBank,
        proposals: Proposals | None,
        place: Sequence[str] | None,
        limits: ReportLimits | None,
    ) -> None:
        self._bank, self._proposals, self._place, self._limits = bank, proposals, place, limits

    def report(self) -> str:
        return data_json(gather_report(self._bank, place=self._place, limits=self._limits))

    def version(self) -> str:
        proposals = None if self._proposals is None else self._proposals.status()
        return json.dumps({"version": self._bank.state.version(), "proposals": proposals})

    def undo(self, asked: dict[str, Any]) -> dict[str, Any]:
        return _told(self._bank.undo(_text(asked, "run_id")))

    def restore(self, asked: dict[str, Any]) -> dict[str, Any]:
        memory_id, seen = _text(asked, "id"), asked.get("digest")
        now = self._bank.content.get([memory_id]).get(memory_id)
        if seen is not None and now is not None and now.digest != seen:
            raise JournalError(
                f"{memory_id!r} was rewritten since this page was loaded: reload it, and look again"
            )
        return _told(self._bank.restore([memory_id]))

    def distrust(self, asked: dict[str, Any]) -> dict[str, Any]:
        return _told(self._bank.distrust([_text(asked, "id")]))


def _propose(proposals: Proposals, _asked: dict[str, Any]) -> dict[str, Any]:
    proposals.propose()
    return {}


def _decide(proposals: Proposals, asked: dict[str, Any]) -> dict[str, Any]:
    proposals.decide(_texts(asked, "accepted"), _texts(asked, "declined"))
    return {}


def _told(run: Run) -> dict[str, Any]:
    return {"run_id": run.run_id, "changes": run.changes}


def _text(asked: dict[str, Any], name: str) -> str:
    value = asked.get(name)
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{name} must be a text, not {type(value).__name__}")
    return value


def _texts(asked: dict[str, Any], name: str) -> list[str]:
    values = asked.get(name, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ConfigError(f"{name} must be a list of texts")
    return values


def _reading(read: Callable[[], str]) -> Callable[[Request], Any]:
    async def answer(_request: Request) -> Response:
        return Response(await run_in_threadpool(read), media_type="application/json")

    return answer


def _changing(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        try:
            asked = json.loads(await request.body())
        except (ValueError, RecursionError):
            return refused("the request is no JSON", 400)
        if not isinstance(asked, dict):
            return refused("the request is no JSON object", 400)
        return JSONResponse(await run_in_threadpool(change, asked))

    return answer


async def _explained(_request: Request, error: Exception) -> Response:
    status = next((code for kind, code in STATUS if isinstance(error, kind)), 503)
    return refused(str(error), status)


def _part(name: str) -> str:
    return (files("shared_core.serving") / "page" / name).read_text(encoding="utf-8")
