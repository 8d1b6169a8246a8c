"""Who may ask this server anything: whoever has the token, by the name it was started under.

The token is in the page's address and in a header of every request that changes something. No cookie exists,
so a page of another site can send nothing in the user's name; names that only lead here, by a DNS of
somebody else's, are refused by the Host header. Knows no bank.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from shared_core.errors import ConfigError

TOKEN_HEADER = "x-dream-token"  # noqa: S105 (its name)
LARGEST_BODY = 64 * 1024
"""Bytes of a request."""
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
Next = Callable[[Request], Awaitable[Response]]


def new_token() -> str:
    """Return a token that cannot be guessed."""
    return secrets.token_urlsafe(24)


class Guard:
    """Middleware that lets pass what has the token and the right host, and marks every answer.

    Args:
        token: Of ``new_token``.
        hosts: Names by which the server may be called, without ports; ``*`` for any.
    """

    def __init__(self, token: str, hosts: Sequence[str]) -> None:
        if not token:
            raise ConfigError("a server without a token would obey anybody: give one of new_token()")
        self._token = token
        self._hosts = frozenset(hosts)

    async def __call__(self, request: Request, go_on: Next) -> Response:
        """Answer, or let the next one answer."""
        answer = self._refusal(request) or await go_on(request)
        answer.headers.update(HEADERS)
        return answer

    def _refusal(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        if "*" not in self._hosts and _without_port(host) not in self._hosts:
            return refused("this server does not answer to that name", 400)
        changing = request.method not in {"GET", "HEAD"}
        given = request.headers.get(TOKEN_HEADER) or (
            "" if changing else request.query_params.get("token", "")
        )
        if not secrets.compare_digest(given.encode(), self._token.encode()):
            return refused("open the address that `dream ui` printed, with its token", 403)
        origin = request.headers.get("origin")
        if changing and origin is not None and origin != f"{request.url.scheme}://{host}":
            return refused("only the page of this server may change anything", 403)
        if changing and request.headers.get("content-type", "").split(";")[0] != "application/json":
            return refused("send JSON", 415)
        length = request.headers.get("content-length", "0" if not changing else "")
        if not length.isdecimal() or int(length) > LARGEST_BODY:
            return refused(f"a request has a length, of at most {LARGEST_BODY} bytes", 413)
        return None


def refused(why: str, status: int) -> JSONResponse:
    """Return an answer that says why not."""
    return JSONResponse({"error": why}, status_code=status)


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).lower()
