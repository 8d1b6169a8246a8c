"""``dream report``: a bank as one HTML page for people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shared_core.cli import options
from shared_core.cli.console import emit, safe, say
from shared_core.errors import ConfigError

MOST_MEMORIES = 20_000
SHOWN_NODES = 1000


def report(
    location: options.Location,
    collection: options.Collection,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The HTML file to write.")],
    limit: Annotated[
        int, typer.Option(min=1, max=MOST_MEMORIES, help="How many memories the page holds, suspects first.")
    ] = 2000,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FILE where it exists.")] = False,
    state: options.State = None,
    where: options.Where = None,
    as_json: options.AsJson = False,
) -> None:
    """Write one HTML page about the bank: suspects and why, repairs, timeline, graph, search.

    Changes nothing in the bank. The page holds texts of memories and needs no network: open it in a browser.

    Example: dream report ./chroma --collection memories -o report.html
    """
    from shared_core.reporting import ReportLimits, gather_report, page_html, write_page

    if output.exists() and not overwrite:
        raise ConfigError(f"--output {output} exists: give --overwrite to replace it, or another name")
    place = options.place(location, collection, state, where)
    limits = ReportLimits(memories=limit, nodes=min(limit, SHOWN_NODES))
    with options.open_bank(location, collection, state, where) as bank:
        data = gather_report(bank, place=place, limits=limits)
    text = page_html(data)
    write_page(text, output, overwrite=overwrite)
    size = output.stat().st_size
    if as_json:
        emit(
            {
                "file": str(output),
                "bytes": size,
                "sentence": data.headline.sentence,
                "memories": data.counts.memories,
                "shown": len(data.memories),
                "suspects": data.counts.suspects,
                "repairs": len(data.repairs),
                "left_out": list(data.left_out),
            }
        )
        return
    say(data.headline.sentence)
    for line in data.left_out:
        say(f"  {line}")
    say(safe(f"{output}: {size / 1e6:.1f} MB; it holds texts of memories", 1000))
