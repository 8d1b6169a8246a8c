"""Connections to PostgreSQL that are never waited for without end.

Three things may go wrong without a word: the server or a proxy before it stands still, which only a limit of
our own notices; the network drops everything, which the kernel's keep-alive notices; and the server does not
notice that we are gone, and keeps the locks of what we had begun. Source: none, ours [O].
"""

from __future__ import annotations

import selectors
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import event

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.engine import URL

CONNECT_SECONDS, ANSWER_SECONDS = 10.0, 300.0
"""So long PostgreSQL is waited for, as a Chroma server is: for a connection, for any part of an answer."""
PROBE_SECONDS = 30.0
"""So long one small number is waited for that every search asks for."""
_KEEPALIVE = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
"""Options of libpq: a machine that is gone is given up after a minute."""
_SERVER = {
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "60000",
    "client_connection_check_interval": "10000",
}
"""The same for the server: what we left unfinished is rolled back, and its locks are free."""
# a server that does not know one of them, or a pooler, goes without
_TELL = (
    "SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS told(name, value) "
    "WHERE current_setting(name, true) IS NOT NULL"
)

Answer = TypeVar("Answer")
_Selector: type[selectors.BaseSelector] = getattr(selectors, "PollSelector", selectors.SelectSelector)


def connect_arguments(url: URL) -> dict[str, Any]:
    """Return what the driver is told beside the URL, whose own options come first; nothing for SQLite."""
    if url.get_driver_name() != "psycopg":
        return {}
    wanted = {"connect_timeout": int(CONNECT_SECONDS), **_KEEPALIVE}
    return {name: value for name, value in wanted.items() if name not in url.query}


def limit_waiting(engine: Engine) -> None:
    """Have an engine give up a connection from which nothing comes; does nothing for other drivers."""
    if engine.dialect.driver != "psycopg":
        return
    kind = _limited_connection()

    @event.listens_for(engine, "do_connect")
    def _connect(_dialect: Any, _record: Any, arguments: Any, options: Any) -> Any:
        return kind.connect(*arguments, **options)

    @event.listens_for(engine, "connect")
    def _on_connect(connection: Any, _record: object) -> None:
        connection.execute(_TELL, (list(_SERVER), list(_SERVER.values())))
        # rolled back with the transaction otherwise
        connection.commit()


def _limited_connection() -> Any:
    import psycopg

    class LimitedConnection(psycopg.Connection[Any]):
        """Waits ``answer_seconds`` for something to come, None: ``ANSWER_SECONDS``."""

        answer_seconds: float | None = None

        def wait(self, gen: Generator[Any, Any, Answer], *args: Any, **options: Any) -> Answer:
            return super().wait(self._limited(gen), *args, **options)

        def _limited(self, gen: Generator[Any, Any, Answer]) -> Generator[Any, Any, Answer]:
            # psycopg's own waiting has a limit in its later versions only
            allowed = ANSWER_SECONDS if self.answer_seconds is None else self.answer_seconds
            try:
                wanted = next(gen)
                while True:
                    with _Selector() as selector:
                        selector.register(self.pgconn.socket, wanted)
                        if not selector.select(allowed):
                            self.pgconn.finish()
                            raise psycopg.OperationalError(f"PostgreSQL did not answer within {allowed:g} s")
                    wanted = gen.send((yield wanted))
            except StopIteration as done:
                answer: Answer = done.value
                return answer

    return LimitedConnection
