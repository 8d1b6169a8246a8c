"""URLs of state databases: read, shown and complained about without the password in them."""

from __future__ import annotations

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from shared_core.errors import StateError


def parse_url(url: str | URL) -> URL:
    """Return a state database's URL with the driver that the extra brings.

    Raises:
        StateError: It is none, or of a kind that is not supported.
    """
    try:
        parsed = make_url(url)
        parsed.render_as_string()  # fails where it is not valid Unicode
    except (ArgumentError, ValueError):
        # the text itself may hold a password
        raise StateError(
            "state_url is not a database URL: use sqlite:////path/file.sqlite3 or postgresql://user@host/name"
        ) from None
    if parsed.drivername in {"postgresql", "postgres"}:
        # SQLAlchemy's default PostgreSQL driver is psycopg2; the extra brings psycopg 3
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() not in {"sqlite", "postgresql"}:
        raise StateError(f"state_url names {parsed.get_backend_name()!r}: use SQLite or PostgreSQL")
    if parsed.get_backend_name() == "sqlite" and parsed.database in {None, "", ":memory:"}:
        raise StateError(f"state_url {shown_url(parsed)} names no file: use sqlite:////path/file.sqlite3")
    return parsed


def shown_url(url: URL) -> str:
    """Return a URL for people, without password and options."""
    # options may hold a password too, and are shown by nobody but SQLAlchemy
    return repr(url.set(query={}))


def reason_of(error: Exception, url: URL) -> str:
    """Return the first line of a database's error, without the password."""
    original = getattr(error, "orig", None) or error
    lines = str(original).strip().splitlines() or [type(original).__name__]
    reason = lines[0]
    for secret in (url.password, url.query.get("password")):
        if secret:
            reason = reason.replace(str(secret), "***")
    return reason
