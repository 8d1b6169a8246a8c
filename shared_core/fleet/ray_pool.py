"""Workers as Ray actors, each a process with an embedder of its own.

The one module that imports ray. A cluster that it starts is this machine's alone: it listens on loopback
only, wants a token that nobody else has, runs no dashboard, reports no usage, and leaves no files.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from typing import Any

from shared_core.errors import FleetError, MissingExtraError
from shared_core.fleet.config import FleetConfig
from shared_core.fleet.dreamer import BankDreamer
from shared_core.fleet.jobs import FleetJob
from shared_core.fleet.outcome import Tried
from shared_core.fleet.pool import Pool
from shared_core.fleet.queue import Ticket
from shared_core.scheduling.status import described

START_SECONDS = 180.0
"""A worker is up and has its embedder after so long, or the cluster has no room for one."""
START_TRIES = 2
"""Of a cluster of our own."""
HEAD_SECONDS = 120
"""Ray waits so long for its head process, by itself 30; for the others it waits 30 whatever one says."""
DEATHS = 3
"""So many workers in a row that die while they load the embedder end the run."""
OBJECT_STORE = 80 * 2**20
"""Bytes; Ray's least is 75 MiB, and jobs and outcomes are small."""
LONGEST_LINE = 200
"""Characters of what Ray says."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
LONGEST_TEMPORARY = 40
"""Characters; the path of a Unix socket below it may have 107."""

logger = logging.getLogger(__name__)


class RayWorker:
    """What runs in a worker process."""

    def __init__(self, config: FleetConfig) -> None:
        self._dreamer = BankDreamer(config)

    def load(self) -> str | None:
        """Make the embedder; returns the error where it cannot be made."""
        try:
            self._dreamer.load()
        except Exception as error:  # not every error can travel between processes
            return described(error)
        return None

    def dream(self, job: FleetJob) -> Tried:
        """See ``BankDreamer.dream``."""
        return self._dreamer.dream(job)


class RayPool(Pool):
    """Workers of a Ray cluster; a worker that dies is replaced.

    Args:
        config: Options of the dreams.
        workers: How many.
        address: Of a cluster to join; "local" starts one. An initialised Ray is used as it is.
    """

    def __init__(self, config: FleetConfig, workers: int, address: str = "local") -> None:
        self.lost = 0
        self._config = config
        self._workers = workers
        self._address = address
        self._stack = ExitStack()
        self._idle: list[Any] = []
        self._loading: dict[Any, Any] = {}
        self._running: dict[Any, tuple[Any, Ticket, float]] = {}
        self._deaths = 0
        self._since = 0.0

    def __enter__(self) -> RayPool:
        with self._stack:
            self._ray = self._stack.enter_context(connected(self._address, self._workers))
            self._stack.callback(self._dismiss)
            self._remote = self._ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(RayWorker)
            for _ in range(self._workers):
                self._hire()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._stack.__exit__(*exc)

    def has_room(self) -> bool:
        """See ``Pool``."""
        return bool(self._idle)

    def is_idle(self) -> bool:
        """See ``Pool``."""
        return not self._running

    def start(self, ticket: Ticket) -> None:
        """See ``Pool``."""
        worker = self._idle.pop()
        self._running[worker.dream.remote(ticket.job)] = (worker, ticket, time.monotonic())

    def wait(self, seconds: float) -> list[tuple[Ticket, Tried]]:
        """See ``Pool``."""
        pending = [*self._running, *self._loading]
        finished, _ = self._ray.wait(pending, num_returns=1, timeout=seconds)
        if not finished and not self._running and time.monotonic() - self._since > START_SECONDS:
            raise FleetError(
                f"Ray gave no worker within {START_SECONDS:g} s: its cluster has "
                f"{self._ray.cluster_resources().get('CPU', 0):g} CPUs, and each of {self._workers} workers "
                "wants one"
            )
        ended: list[tuple[Ticket, Tried]] = []
        for reference in finished:
            if reference in self._loading:
                self._loaded(reference)
            else:
                ended.append(self._ended(reference))
        return ended

    # ---- inner

    def _hire(self) -> None:
        worker = self._remote.remote(self._config)
        self._loading[worker.load.remote()] = worker
        self._since = time.monotonic()

    def _loaded(self, reference: Any) -> None:
        worker = self._loading.pop(reference)
        try:
            error = self._ray.get(reference)
        except self._ray.exceptions.RayError as death:
            self._deaths += 1
            if self._deaths >= DEATHS:
                raise FleetError(
                    f"{DEATHS} workers in a row died while they loaded the embedder: {_brief(death)}"
                ) from None
            self._replace(worker, death)
            return
        if error is not None:
            raise FleetError(f"a worker cannot make the embedder: {error}")
        self._deaths = 0
        self._idle.append(worker)

    def _ended(self, reference: Any) -> tuple[Ticket, Tried]:
        worker, ticket, began = self._running.pop(reference)
        try:
            tried: Tried = self._ray.get(reference)
        except self._ray.exceptions.RayError as death:
            self._replace(worker, death)
            error = f"the worker process died while the bank dreamt: {_brief(death)}"
            return ticket, Tried(status="failed", error=error, seconds=time.monotonic() - began)
        self._idle.append(worker)
        return ticket, tried

    def _replace(self, worker: Any, death: Exception) -> None:
        logger.info("a worker of the fleet died and is replaced: %s", _brief(death))
        self.lost += 1
        self._end(worker)
        self._hire()

    def _dismiss(self) -> None:
        busy = [worker for worker, _, _ in self._running.values()]
        for worker in (*self._idle, *self._loading.values(), *busy):
            self._end(worker)

    def _end(self, worker: Any) -> None:
        with suppress(self._ray.exceptions.RayError, ValueError):
            self._ray.kill(worker)


@contextmanager
def connected(address: str, workers: int) -> Iterator[Any]:
    """Yield ray, initialised; what was started here is ended afterwards.

    Raises:
        MissingExtraError: Ray is not installed.
        FleetError: No cluster can be started or joined.
    """
    _require_own_import(address)
    with ExitStack() as stack:
        stack.enter_context(_environment(address))
        try:
            import ray
        except ImportError:
            raise MissingExtraError("ray", "ray") from None
        if not ray.is_initialized():
            stack.enter_context(_signals_kept())
            _start(ray, stack, address, workers)
        yield ray


def _require_own_import(address: str) -> None:
    """Refuse a Ray that was imported without our token: it reads it then, and never again."""
    ray = sys.modules.get("ray")
    if address != "local" or ray is None or ray.is_initialized():
        return
    if "RAY_AUTH_MODE" not in os.environ and not _token.cache_info().currsize:
        raise FleetError(
            "ray was imported before the fleet could give it a token: import it after the fleet's run, or "
            "call ray.init() yourself, and the fleet uses that cluster"
        )


def _start(ray: Any, stack: ExitStack, address: str, workers: int) -> None:
    # a busy machine may start Ray too slowly for its own fixed limits, and faster once it was read from disk
    tries = START_TRIES if address == "local" else 1
    for tried in range(1, tries + 1):
        with ExitStack() as attempt:
            options: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
            if address == "local":
                options |= _own_cluster(attempt, workers)
            attempt.callback(ray.shutdown)
            try:
                ray.init(address=address, **options)
            except Exception as error:  # Ray raises it as it is
                if tried == tries:
                    raise FleetError(f"Ray cannot be reached or started at {address!r}: {error}") from error
                logger.info("Ray did not start, and is tried once more: %s", error)
                continue
            stack.push(attempt.pop_all())
            return


def _own_cluster(stack: ExitStack, workers: int) -> dict[str, Any]:
    options: dict[str, Any] = {
        "num_cpus": workers,
        "num_gpus": 0,
        "include_dashboard": False,
        "object_store_memory": OBJECT_STORE,
    }
    if len(tempfile.gettempdir()) <= LONGEST_TEMPORARY:
        folder = tempfile.mkdtemp(prefix="dream-ray-")
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        options["_temp_dir"] = folder
    return options


@contextmanager
def _environment(address: str) -> Iterator[None]:
    """Set what Ray reads from the environment while it is imported and started; what the user set stays."""
    wanted = {"RAY_USAGE_STATS_ENABLED": "0"}
    if address == "local":
        # the switch's name notwithstanding, it also keeps Linux to loopback
        wanted |= {
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            "RAY_gcs_server_port_wait_time_s": str(HEAD_SECONDS),
        }
        if "RAY_AUTH_MODE" not in os.environ:
            wanted |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": _token()}
    added = [name for name in wanted if name not in os.environ]
    os.environ.update({name: wanted[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@cache
def _token() -> str:
    # Ray reads it once per process
    return secrets.token_hex(32)


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Give back the handler of SIGTERM, which Ray replaces."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def _brief(error: Exception) -> str:
    """Return the first line of the many that Ray says, and the error that a traceback ends with."""
    lines = _COLOURS.sub("", str(error)).strip().splitlines()
    if not lines:
        return type(error).__name__
    first = lines[0][:LONGEST_LINE]
    return f"{first}: {lines[-1].strip()[:LONGEST_LINE]}" if "Traceback" in str(error) else first
