"""``dream eval figures``: weights per iteration and distributions of the terms, as SVG."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Optional

import typer

from shared_core.cli import options
from shared_core.cli.console import emit, progress_bar, say
from shared_core.cli.law import cases_of
from shared_core.errors import ConfigError

FAMILY = "agentpoison-ehr500-in"
LONGEST_NAME = 60


def figures(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Directory for the SVG files; those of that name are replaced."),
    ],
    data: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Directory of the published attacks; the bundled one is always drawn."),
    ] = None,
    family: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            help=f"Families of --data, the first case of each. Default: {FAMILY}.", show_default=False
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the probes.")] = 0,
    as_json: options.AsJson = False,
) -> None:
    """Draw how weights move in a sweep, and how little the published terms tell poison from benign.

    Example: dream eval figures --data DIR -o docs/figures
    """
    from shared_core.evaluation import CachedEmbedder
    from shared_core.reporting import case_weights, draw_terms, draw_weights, save_svg, term_scores

    if output.exists() and not output.is_dir():
        raise ConfigError(f"--output {output} is a file: name a directory")
    model = CachedEmbedder(options.open_embedder("minilm"))
    cases = cases_of(data, family or [FAMILY], 1, model, seed)
    written = []
    with progress_bar() as progress:
        for done, case in enumerate(cases, start=1):
            name = re.sub(r"[^a-z0-9]+", "-", case.name.lower()).strip("-")[:LONGEST_NAME]
            weights, terms = output / f"weights-{name}.svg", output / f"terms-{name}.svg"
            try:
                save_svg(draw_weights(case_weights(case, model, seed=seed), case.name), weights)
                save_svg(draw_terms(term_scores(case, model, seed), case.name), terms)
            except OSError as error:
                raise ConfigError(f"--output {output} cannot be written to: {error}") from None
            written += [str(weights), str(terms)]
            if progress is not None:
                progress("cases", done, len(cases))
    if as_json:
        emit({"files": written})
        return
    for file in written:
        say(file)
