"""A real TCP proxy that breaks what passes through it, at a byte or at a moment.

Its loop runs in a thread of its own; a test arms one ``Cut`` at a time, and heals the network again. What is
not cut passes unchanged.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

How = Literal["reset", "forsake", "end", "silence", "delay"]
Direction = Literal["request", "response"]
CHUNK = 65_536
WAIT_SECONDS = 30.0
GATHER_SECONDS = 0.05
"""So long the rest of a part may take to come."""
_RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True, kw_only=True)
class Cut:
    """What happens to connections.

    "reset" sends RST to both sides, "forsake" to the client only, while the server goes on with what it was
    asked; "end" closes both as a proxy does that is shut down, "silence" swallows all that comes and says
    nothing to anybody, "delay" lets each part wait.
    """

    how: How
    direction: Direction = "request"
    after: int | None = None
    """So many bytes of that direction still pass, counted from arming."""
    part: int | None = None
    """So many parts, as they come over the wire, still pass; None and no ``after`` either: by ``at``."""
    at: float = 0.0
    """Seconds from arming."""
    once: bool = False
    """Only the connection that is hit breaks, and new ones pass; else all, until the network is healed."""
    seconds: float = 0.0
    """How long a delayed part waits; or the last one that passes when the client is forsaken."""


@dataclass(eq=False)
class _Link:
    """One connection: the client's side and the server's."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    is_silent: bool = False

    def break_off(self, *, reset: bool, server: bool = True) -> None:
        for writer in (self.client, self.server) if server else (self.client,):
            taken = writer.get_extra_info("socket")
            if reset and taken is not None and taken.family == socket.AF_INET:
                with suppress(OSError):
                    taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort() if reset else writer.close()


@dataclass
class Passed:
    """Bytes that came to the proxy since it was armed or healed."""

    request: int = 0
    response: int = 0
    request_parts: int = 0
    response_parts: int = 0


class CutNetwork:
    """Stands before a server.

    Args:
        target: Host and port, or the path of a Unix socket.
    """

    def __init__(self, target: tuple[str, int] | str) -> None:
        self._target = target
        self._cut: Cut | None = None
        self._down: How | None = None
        self._links: set[_Link] = set()
        self.passed = Passed()
        self.struck = 0
        """Connections that were broken since the last arming."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cut-network", daemon=True)
        self._thread.start()
        self._server = self._do(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def arm(self, cut: Cut) -> None:
        """Break connections as ``cut`` says, from now on."""
        self._do(self._arm(cut))

    def heal(self) -> None:
        """Let new connections pass; those that stood still are gone, as the next packet would show."""
        self._do(self._heal())

    def close(self) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_SECONDS)
        self._loop.close()

    # ---- in the loop

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_SECONDS)

    async def _arm(self, cut: Cut) -> None:
        self._cut, self.passed, self.struck = cut, Passed(), 0
        if cut.after is None and cut.part is None and cut.how != "delay":
            self._loop.call_later(cut.at, self._strike, cut, None)

    async def _heal(self) -> None:
        self._cut = self._down = None
        self.passed = Passed()
        for link in list(self._links):
            if link.is_silent:
                link.break_off(reset=True)
        await asyncio.sleep(0)

    async def _end(self) -> None:
        self._cut = None
        self._server.close()
        for link in list(self._links):
            link.break_off(reset=True)
        while self._links:
            await asyncio.sleep(0.01)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if isinstance(self._target, str):
                back, forth = await asyncio.open_unix_connection(self._target)
            else:
                back, forth = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        link = _Link(writer, forth, is_silent=self._down == "silence")
        self._links.add(link)
        if self._down not in (None, "silence"):
            link.break_off(reset=self._down != "end")
        try:
            await asyncio.gather(
                self._pump(reader, forth, "request", link), self._pump(back, writer, "response", link)
            )
        finally:
            self._links.discard(link)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        direction: Direction,
        link: _Link,
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                passing, cut = self._passing(data, direction)
                if link.is_silent:
                    continue
                if self._cut is not None and self._cut.how == "delay":
                    await asyncio.sleep(self._cut.seconds)
                if cut is not None and cut.how == "forsake":
                    passing += await self._forsaken(reader, cut, link)
                    cut = None
                writer.write(passing)
                await writer.drain()
                if cut is not None:
                    self._strike(cut, link)
        if not link.is_silent:
            writer.close()
            return
        # the other side learns nothing until the network is healed
        while not writer.is_closing():
            await asyncio.sleep(0.01)

    async def _forsaken(self, reader: asyncio.StreamReader, cut: Cut, link: _Link) -> bytes:
        """Return what was on its way when the client was given up, later."""
        more = b""
        if cut.part is not None:
            with suppress(asyncio.TimeoutError):
                more = await asyncio.wait_for(reader.read(CHUNK), GATHER_SECONDS)
        self._strike(cut, link)
        await asyncio.sleep(cut.seconds)
        return more

    def _passing(self, data: bytes, direction: Direction) -> tuple[bytes, Cut | None]:
        """Return what of some data still passes, and the cut that comes then."""
        before, parts = getattr(self.passed, direction), getattr(self.passed, f"{direction}_parts") + 1
        setattr(self.passed, direction, before + len(data))
        setattr(self.passed, f"{direction}_parts", parts)
        cut = self._cut
        if cut is None or self.struck or cut.direction != direction or cut.how == "delay":
            return data, None
        if cut.part is not None:
            return data, cut if parts == cut.part else None
        if cut.after is None or before + len(data) <= cut.after:
            return data, None
        return data[: cut.after - before], cut

    def _strike(self, cut: Cut, hit: _Link | None) -> None:
        if self._cut is not cut or self.struck:
            return
        if not cut.once:
            self._down = cut.how
        for link in [hit] if cut.once and hit is not None else list(self._links):
            self._break(link, cut.how)
            self.struck += 1

    def _break(self, link: _Link, how: How) -> None:
        link.is_silent = how in ("silence", "forsake")
        if how != "silence":
            link.break_off(reset=how != "end", server=how != "forsake")


@dataclass
class Networks:
    """A proxy before each of some servers."""

    by_name: dict[str, CutNetwork] = field(default_factory=dict)

    def heal(self) -> None:
        for one in self.by_name.values():
            one.heal()


@contextmanager
def networks(**targets: tuple[str, int] | str) -> Iterator[Networks]:
    made = Networks({name: CutNetwork(target) for name, target in targets.items()})
    try:
        yield made
    finally:
        for one in made.by_name.values():
            one.close()
