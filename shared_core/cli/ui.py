"""``dream ui``: the report's page, live, with buttons; on this machine only unless told otherwise."""

from __future__ import annotations

import socket
import webbrowser
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from shared_core.cli import options
from shared_core.cli.console import emit, say
from shared_core.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from shared_core.bank import MemoryBank
    from shared_core.scheduling.reviewed import ReviewedDream

CLOSE_SECONDS = 10


def ui(
    location: options.Location,
    collection: options.Collection,
    host: Annotated[
        str, typer.Option(help="Address to listen on; anything but loopback lets other machines in.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 0,
    embedder: Annotated[
        Optional[str],  # noqa: UP045 (read at run time, on Python 3.10 too)
        typer.Option(help="To look for repairs: " + options.EMBEDDER_HELP, show_default=False),
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
    state: options.State = None,
    where: options.Where = None,
    as_json: options.AsJson = False,
) -> None:
    """Serve the bank's report with working undo and restore buttons, and repairs to accept, until Ctrl-C.

    Whoever has the printed address may read and change the bank; its token is made anew at each start. With
    --json the address is printed as one JSON object first.

    Example: dream ui ./chroma --collection memories --embedder minilm
    """
    try:
        import uvicorn

        from shared_core.serving import Proposals, make_application
        from shared_core.serving.application import LOOPBACK
        from shared_core.serving.guarding import new_token
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "starlette", "ui") from None

    token = new_token()
    with (
        options.open_bank(location, collection, state, where) as bank,
        closing(Proposals(lambda: _dream(bank, embedder))) as proposals,
        closing(_listening(host, port)) as listener,
    ):
        application = make_application(
            bank,
            token,
            hosts=_names(host, LOOPBACK),
            proposals=proposals if embedder else None,
            place=options.place(location, collection, state, where),
        )
        address = f"http://{_shown(host)}:{listener.getsockname()[1]}/?token={token}"
        if as_json:
            emit({"address": address})
        else:
            say(f"{address}\nKeep the address to yourself; Ctrl-C ends the server.")
            if host not in LOOPBACK:
                say("Other machines can reach it, and nothing is encrypted: put a proxy with TLS before it.")
        if not (no_open or as_json):
            webbrowser.open(address)
        # its log of requests would hold the token
        config = uvicorn.Config(
            application, access_log=False, log_level="warning", timeout_graceful_shutdown=CLOSE_SECONDS
        )
        uvicorn.Server(config).run(sockets=[listener])


def _dream(bank: MemoryBank, embedder: str | None) -> ReviewedDream:
    from shared_core.scheduling.reviewed import ReviewedDream

    bank.embedder = bank.embedder or options.fitting_embedder(bank, embedder, "a dream needs an embedder")
    return ReviewedDream(bank)


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen on {host}, port {port}: {error.strerror or error}; give another --port, or 0"
        ) from None
    return listener


def _names(host: str, loopback: tuple[str, ...]) -> list[str]:
    if host in {"0.0.0.0", "::"}:  # noqa: S104 (asked for by name)
        return ["*"]
    return [*loopback, _shown(host).lower()]


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
