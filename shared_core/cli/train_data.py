"""``dream train data``: cases to learn from, out of conversations or of a bank of one's own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from shared_core.cli import dream_options, options
from shared_core.cli.console import emit, progress_bar, safe, say, show
from shared_core.cli.interrupt import Interrupted, stop_on_interrupt
from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from shared_core.bank.graph import GraphKeys
    from shared_core.training.dataset import Example, Talk, TrainingSet
    from shared_core.types import Embedder, Progress

RULES = "rules"
MOST = 10**9
"""Calls and tokens of a teacher: as many as the talks need."""
STOPPING = "dream: the talks that were taught are written; Ctrl-C again breaks it off"


def data(
    location: Annotated[
        Optional[str],  # noqa: UP045 (read at run time, on Python 3.10 too)
        typer.Argument(
            metavar="[PATH]",
            help="Directory of the Chroma database, or URL of a Chroma server.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="DIR", help="Where the set is written.", show_default=False),
    ] = None,
    collection: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--collection", "-c", metavar="NAME", help="The collection.", show_default=False),
    ] = None,
    msc: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            metavar="DIR", help="Files of Multi-Session Chat, instead of a collection.", show_default=False
        ),
    ] = None,
    teacher: Annotated[
        str,
        typer.Option(
            help="rules; smollm2 (weak, offline); or an import path package.module:object of a chat model."
        ),
    ] = RULES,
    talks: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="With --msc: talks to train and to test on, at most.", show_default=False),
    ] = None,
    per_talk: Annotated[int, typer.Option(min=1, help="Cases per talk, agent and signal at most.")] = 12,
    held_out: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="Of a collection: share of the memories to test on.")
    ] = 0.25,
    seed: Annotated[int, typer.Option(min=0, help="Seed of questions and draws.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier set.")] = False,
    embedder: dream_options.EmbedderName = None,
    session_key: dream_options.SessionKey = None,
    speaker_key: dream_options.SpeakerKey = None,
    time_key: dream_options.TimeKey = None,
    state: options.State = None,
    where: options.Where = None,
    as_json: options.AsJson = False,
) -> None:
    """Write cases of all three agents, with a teacher's replies, as JSON lines; memories are only read.

    Examples: dream train data --msc ./msc --talks 40 --out data
              dream train data ./chroma --collection memories --out data
    """
    from shared_core.training.dataset import write_training_set

    if (msc is None) == (location is None):
        raise ConfigError("give the PATH of a Chroma database with --collection NAME, or --msc DIR")
    if out is None:
        raise ConfigError("give --out DIR, where the set is written")
    _check_free(out, overwrite=overwrite)
    model = None if teacher == RULES else options.open_model(teacher)
    if msc is not None:
        named, found = embedder or "minilm", _of_msc(msc, talks, collection)
        embeds = options.open_embedder(named)
    else:
        keys = dream_options.graph_keys_of(session=session_key, speaker=speaker_key, time=time_key)
        place = (str(location), collection, state, where)
        named, embeds, found = _of_bank(place, embedder, keys, held_out)
    with progress_bar() as progress, stop_on_interrupt(STOPPING) as stop:
        taught, examples, counts = _taught(
            found,
            embeds,
            {"teacher": model, "name": teacher, "per_talk": per_talk, "seed": seed},
            stop,
            progress,
        )
        stopped = stop()
    if not examples:
        raise ConfigError(f"of {len(found)} talks none gave a case to learn from: nothing is written")
    card = {
        "source": "msc" if msc is not None else collection,
        "teacher": teacher,
        "per_talk": per_talk,
        "seed": seed,
        "embedder": named,
        "counts": dict(counts),
    }
    made = write_training_set(out, taught, examples, card, overwrite=overwrite)
    told = {"path": str(out), "talks_found": len(found), **made.card}
    if as_json:
        emit(told)
    else:
        _show(made, out, counts)
    if stopped:
        raise Interrupted


def _check_free(out: Path, *, overwrite: bool) -> None:
    """Refuse a folder with a set before hours of teaching."""
    from shared_core.training.dataset import CARD, DATA_FILES

    if not overwrite and (there := [name for name in (*DATA_FILES, CARD) if (out / name).exists()]):
        raise ConfigError(f"{out} holds a training set ({there[0]}): give another --out, or --overwrite")


def _of_msc(folder: Path, talks: int | None, collection: str | None) -> list[Talk]:
    from shared_core.training.msc import read_msc

    if collection is not None:
        raise ConfigError("--collection is of a Chroma database: give its PATH, or --msc DIR alone")
    return read_msc(folder, limit=talks)


def _of_bank(
    place: tuple[str, str | None, str | None, str | None],
    embedder: str | None,
    keys: GraphKeys,
    held_out: float,
) -> tuple[str, Embedder, list[Talk]]:
    """Return the embedder's name, the embedder, and the memories to train and to test on."""
    from shared_core.training.practice import talk_of
    from shared_core.training.splitting import split_talk

    location, collection, state, where = place
    if collection is None:
        raise ConfigError("give --collection NAME with the PATH")
    with options.open_bank(location, collection, state, where) as bank:
        found = options.fitting_embedder(bank, embedder, "questions are embedded")
        talk = talk_of(bank, keys, name=collection)
    return embedder or "minilm", found, split_talk(talk, held_out)


def _taught(
    talks: Sequence[Talk],
    embedder: Embedder,
    how: dict[str, Any],
    stop: Callable[[], bool],
    progress: Progress | None,
) -> tuple[list[Talk], list[Example], Counter[str]]:
    """Return the talks that were taught before a stop, their examples, and what came of the cases."""
    from shared_core.agents.asking import Asker, AskingLimits
    from shared_core.training.practice import Practice
    from shared_core.training.teaching import teach

    if how["teacher"] is not None:
        # one for all talks: a model that fails again and again is given up once
        how = {**how, "teacher": Asker(how["teacher"], AskingLimits(calls=MOST, tokens=MOST))}
    done: list[Talk] = []
    examples: list[Example] = []
    counts: Counter[str] = Counter()
    for talk in talks:
        if done and stop():
            break
        found, told = teach(Practice(talk, embedder), **how)
        done.append(talk)
        examples += found
        counts += told
        if progress is not None:
            progress("teach", len(done), len(talks))
    return done, examples, counts


def _show(made: TrainingSet, out: Path, counts: Counter[str]) -> None:
    from shared_core.training.dataset import AGENTS

    rows: list[list[Any]] = []
    for agent in AGENTS:
        train, test = (made.of(agent, split) for split in ("train", "test"))
        taught = sum(bool(one.completion) for one in train)
        dropped = {
            what: count
            for name, count in counts.items()
            if count and name.startswith(f"{agent}: ") and (what := name.partition(": ")[2]) != "taught"
        }
        reasons = ", ".join(f"{count} {what}" for what, count in dropped.items()) or "-"
        rows.append([agent, len(train), taught, len(test), safe(reasons)])
    show(["agent", "to train on", "with a reply", "to test on", "no reply because"], rows)
    say(f"{len(made.talks)} talks; written to {out}: next `dream train sft {out} --agent all --out adapters`")
