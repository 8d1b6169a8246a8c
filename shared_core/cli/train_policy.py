"""``dream train policy``: learn on a memory's own dreams which repairs help it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional, cast

import typer

from shared_core.cli import dream_options, options
from shared_core.cli.console import emit, number, progress_bar, say, show
from shared_core.cli.interrupt import Interrupted, stop_on_interrupt
from shared_core.errors import ConfigError
from shared_core.language.counting import counted

if TYPE_CHECKING:
    from shared_core.training import PolicyReport
    from shared_core.training.objectives import ObjectiveName

STOPPING = "dream: it learns from the repairs that were tried; Ctrl-C again breaks it off"


def policy(
    location: options.Location,
    collection: options.Collection,
    out: Annotated[
        Optional[Path],  # noqa: UP045 (read at run time, on Python 3.10 too)
        typer.Option(
            metavar="FILE",
            help="Where the policy is saved, *.safetensors, its card beside it; default: beside the state.",
            show_default=False,
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier policy.")] = False,
    objective: Annotated[
        str, typer.Option(help="imitation of the best verified choice, or group-relative (Eq. 11).")
    ] = "imitation",
    steps: Annotated[int, typer.Option(min=1, help="Steps over all failed questions.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of parts, questions and draws.")] = 0,
    rounds: dream_options.Rounds = 3,
    probes: dream_options.Probes = 96,
    partitions: dream_options.Partitions = 3,
    embedder: dream_options.EmbedderName = None,
    session_key: dream_options.SessionKey = None,
    speaker_key: dream_options.SpeakerKey = None,
    time_key: dream_options.TimeKey = None,
    state: options.State = None,
    where: options.Where = None,
    as_json: options.AsJson = False,
) -> None:
    """Train a small policy that decides which repairs a dream tries; the memory is only read.

    It is used only if it gains more than the rules on memories that it did not learn from.

    Example: dream train policy ./chroma --collection memories
    """
    from shared_core.agents import DreamConfig
    from shared_core.training import PolicyTraining, policy_path, train_policy
    from shared_core.training.policy import check_place

    training = PolicyTraining(objective=cast("ObjectiveName", objective), steps=steps, seed=seed)
    dream = DreamConfig(rounds=rounds, probes=probes, partitions=partitions)
    stopped = False
    with options.open_bank(location, collection, state, where) as bank:
        try:
            check_place(out or policy_path(bank), replace=overwrite)
        except ConfigError as error:
            raise ConfigError(f"{error} (--out FILE, --overwrite)") from None
        bank.embedder = options.fitting_embedder(bank, embedder, "questions are embedded")
        keys = dream_options.graph_keys_of(session=session_key, speaker=speaker_key, time=time_key)
        with progress_bar() as progress, stop_on_interrupt(STOPPING) as stop:
            report = train_policy(
                bank,
                out,
                training=training,
                dream=dream,
                graph_keys=keys,
                overwrite=overwrite,
                stop=stop,
                progress=progress,
            )
            stopped = stop()
    if as_json:
        emit(report.to_dict())
    else:
        _show(report)
    if stopped:
        raise Interrupted


def _show(report: PolicyReport) -> None:
    learning = report.learning
    say(
        f"{counted(report.memories, 'memory')}, {counted(report.cases, 'question')} failed, tried for them: "
        f"{counted(report.tried, 'repair')}; the policy of {report.parameters} numbers decides "
        f"{learning.changed} otherwise than the rules ({report.seconds:.1f} s)"
    )
    rules, trained = report.held_out_rules, report.held_out_policy
    show(
        ["", "rules", "policy", "best possible"],
        [
            ["F1 gained per failed question", learning.rules, learning.policy, learning.best],
            ["held-out mean F1, before", rules.f1_before, trained.f1_before, "-"],
            ["held-out mean F1, after", rules.f1_after, trained.f1_after, "-"],
            ["held-out repairs", rules.repairs, trained.repairs, "-"],
        ],
    )
    asked = f"{counted(trained.probes + trained.fresh, 'question')} about memories that it never saw"
    gained = f"it gains {number(trained.gain)} on {asked}, the rules {number(rules.gain)}"
    say(f"{gained}: {'it is used' if report.used else 'it is not used, the rules go on deciding'}")
    say(f"saved as {report.path}")
