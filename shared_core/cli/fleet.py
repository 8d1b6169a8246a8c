"""``dream fleet``: many banks or tenants dream, in parallel with Ray or one after the other."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from shared_core.cli import dream_options, options
from shared_core.cli.console import emit, progress_bar, safe, say, show
from shared_core.cli.interrupt import Interrupted, stop_on_interrupt
from shared_core.errors import ConfigError, DreamError
from shared_core.language.counting import counted

if TYPE_CHECKING:
    from shared_core.fleet import FleetJob, FleetOutcome, FleetReport

STOPPING = "dream: no further bank begins, those that dream go on to their end; Ctrl-C again breaks them off"
SHOWN = 40
"""Banks in the table."""
HEADERS = (
    "bank",
    "tenant",
    "status",
    "tries",
    "memories",
    "repairs",
    "F1 before",
    "after",
    "seconds",
    "error",
)
ORDER = ("failed", "locked", "done", "skipped")


def fleet(
    source: Annotated[
        str,
        typer.Argument(
            metavar="JOBS.jsonl|PATH",
            help='A file with one bank a line, such as {"path": "./chroma", "collection": "notes"}; or the '
            "directory or URL of a Chroma.",
            show_default=False,
        ),
    ],
    collection: Annotated[
        Optional[str],  # noqa: UP045 (read at run time, on Python 3.10 too)
        typer.Option(
            "--collection", "-c", metavar="NAME", help="Of PATH, with --tenant-key.", show_default=False
        ),
    ] = None,
    all_collections: Annotated[bool, typer.Option("--all-collections", help="All of PATH.")] = False,
    tenant_key: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="NAME",
            help="Metadata field that tells tenants apart: each of its values is a bank of its own.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            min=0,
            help="Processes, with Ray; 0: this process, without Ray. Default: one per core.",
            show_default=False,
        ),
    ] = None,
    retries: Annotated[
        int, typer.Option(min=0, help="Tries more, where a dream fails or its worker dies.")
    ] = 2,
    lock_wait: Annotated[
        float, typer.Option(min=0, max=1e9, help="Seconds to try again a bank that another dreamer holds.")
    ] = 90.0,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            metavar="FILE",
            help="Journal, a line per bank; run again with it, what is done is skipped.",
            show_default=False,
        ),
    ] = None,
    ray: Annotated[
        str, typer.Option("--ray", metavar="ADDRESS", help="Of a Ray cluster to join; local: start one here.")
    ] = "local",
    rounds: dream_options.Rounds = 3,
    probes: dream_options.Probes = 96,
    partitions: dream_options.Partitions = 3,
    repairs: Annotated[int, typer.Option(help="Repairs per bank at most, groundwork apart.")] = 20,
    seconds: Annotated[float, typer.Option(max=1e9, help="Per bank; no repair is tried after them.")] = 120.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of parts and questions.")] = 0,
    no_groundwork: Annotated[
        bool,
        typer.Option("--no-groundwork", help="Write no keys, bridges and graded weights for all memories."),
    ] = False,
    embedder: Annotated[
        str, typer.Option(help=f"{options.EMBEDDER_HELP} One for all banks, loaded once per worker.")
    ] = "minilm",
    session_key: dream_options.SessionKey = None,
    speaker_key: dream_options.SpeakerKey = None,
    time_key: dream_options.TimeKey = None,
    state: options.State = None,
    as_json: options.AsJson = False,
) -> None:
    """Let many banks dream by rules, each under its own lock and with its own undo.

    Ctrl-C lets the banks that dream end, and begins no other.

    Example: dream fleet banks.jsonl --workers 4 --out tonight.jsonl
    """
    from shared_core.agents import DreamConfig
    from shared_core.fleet import DreamFleet, FleetConfig

    chosen: dict[str, Any] = {
        "rounds": rounds,
        "probes": probes,
        "partitions": partitions,
        "repairs": repairs,
    }
    config = FleetConfig(
        dream=DreamConfig(**chosen, seconds=seconds, seed=seed, groundwork=not no_groundwork),
        graph_keys=dream_options.graph_keys_of(session=session_key, speaker=speaker_key, time=time_key),
        embedder=partial(options.open_embedder, embedder),
        lock_wait=lock_wait,
    )
    jobs = _jobs(source, collection, all_collections, tenant_key, state)
    count = (os.cpu_count() or 1) if workers is None else workers
    made = DreamFleet(jobs, config, workers=count, retries=retries, out=out, address=ray)
    with progress_bar() as progress, stop_on_interrupt(STOPPING) as stop:
        report = made.run(progress=progress, stop=stop)
        stopped = stop()
    if as_json:
        emit(report.to_dict())
    else:
        _show(report, out)
    if stopped:
        raise Interrupted
    if bad := report.counts["failed"] + report.counts["locked"]:
        raise DreamError(f"{bad} of {len(jobs)} banks did not dream; their errors are in the report")


def _jobs(
    source: str, collection: str | None, all_collections: bool, tenant_key: str | None, state: str | None
) -> list[FleetJob]:
    from shared_core.fleet import jobs_of_collections, jobs_of_tenants, read_jobs

    if Path(source).is_file():
        if collection or all_collections or tenant_key:
            raise ConfigError(
                "--collection, --all-collections and --tenant-key are for a Chroma; a file of jobs names them"
            )
        return read_jobs(source, state=state)
    if not Path(source).is_dir() and not source.startswith(("http://", "https://")):
        raise ConfigError(f"{options.shortened(source)!r} is no file of jobs, no directory and no URL")
    if all_collections == (collection is not None) or (collection is not None and tenant_key is None):
        raise ConfigError(
            "a Chroma needs --all-collections, or --collection NAME with --tenant-key; one collection as a "
            "whole dreams with `dream cycle`"
        )
    whole = jobs_of_collections(source, state=state) if all_collections else []
    if tenant_key is None:
        return whole
    names = [job.collection for job in whole] if collection is None else [collection]
    found = [jobs_of_tenants(source, name, tenant_key, state=state) for name in names]
    without = sum(count for _, count in found)
    if without:
        typer.echo(
            f"dream: without a plain {tenant_key!r}, and in no bank's dream: {counted(without, 'memory')}",
            err=True,
        )
    return [job for jobs, _ in found for job in jobs]


def _show(report: FleetReport, out: Path | None) -> None:
    told = ", ".join(f"{count} {status}" for status, count in report.counts.items() if count)
    hands = counted(report.workers, "worker") if report.workers else "one process"
    lost = (
        f", replaced for having died: {counted(report.lost_workers, 'worker')}" if report.lost_workers else ""
    )
    say(f"{told}; {counted(report.repairs, 'repair')} in {report.seconds:.1f} s by {hands}{lost}")
    ranked = sorted(report.outcomes, key=lambda outcome: ORDER.index(outcome.status))
    if ranked:
        show(HEADERS, [_row(outcome) for outcome in ranked[:SHOWN]])
    if len(ranked) > SHOWN:
        rest = f"all in {out}" if out else "all with --json"
        say(safe(f"and {len(ranked) - SHOWN} more; {rest}"))


def _row(outcome: FleetOutcome) -> tuple[object, ...]:
    place = f"{outcome.location.rstrip('/').rpartition('/')[2]}/{outcome.collection}"
    tenant = " ".join(f"{key}={value}" for key, value in (outcome.where or {}).items())
    return (
        safe(place, 40, tail=True),
        safe(tenant or "-", 30),
        outcome.status,
        outcome.attempts,
        outcome.memories,
        outcome.repairs,
        outcome.f1_before,
        outcome.f1_after,
        round(outcome.seconds, 2),
        safe(outcome.error or "-", 200),
    )
