"""Talks as memory graphs, and banks as talks.

A talk is stored and read by the same code as any user's conversation, in a bank that is gone afterwards.

Source: MemDream section 3.3.2: agents are trained on dialogue [S]; training on a bank of one's own is
ours [O].
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

import numpy as np

from shared_core.agents.weakness import usable
from shared_core.bank.conversation import ConversationMemory, Page
from shared_core.bank.graph import read_graph
from shared_core.bank.passing import passing_bank
from shared_core.errors import ConfigError
from shared_core.language.pages import line_of
from shared_core.training.dataset import Talk, Utterance

if TYPE_CHECKING:
    from shared_core.bank import MemoryBank
    from shared_core.bank.graph import GraphKeys, MemoryGraph
    from shared_core.training.dataset_forms import Split
    from shared_core.types import Embedder

NO_SESSION = "none"
"""Session of a memory that names none."""


def graph_of(talk: Talk, embedder: Embedder) -> MemoryGraph:
    """Return a talk as a graph; the memories' ids are those of its pages.

    Args:
        talk: At least one page.
        embedder: Embeds the pages, once.

    Raises:
        ConfigError: The talk has no page.
        InvalidMemoryError: A page is malformed, or an id belongs to two texts.
    """
    if not talk.pages:
        raise ConfigError(f"talk {talk.name!r} has no page: there is nothing to practise on")
    with passing_bank(embedder) as bank:
        ConversationMemory(bank).add_pages(pages_of(talk))
        return read_graph(bank)


def pages_of(talk: Talk) -> list[Page]:
    """Return what a talk's utterances are stored as."""
    return [
        Page(
            id=page.id,
            text=page.text,
            session=page.session,
            speaker=page.speaker,
            time=None if page.time is None else datetime.fromisoformat(page.time),
        )
        for page in talk.pages
    ]


def talk_of(
    bank: MemoryBank, graph_keys: GraphKeys | None = None, *, name: str | None = None, split: Split = "train"
) -> Talk:
    """Return the memories of a bank as a talk; derived, suspect and forgotten ones are left out.

    A talk made so has no facts: what was asked of the bank is not known.

    Args:
        bank: Only read.
        graph_keys: Metadata fields that say where a memory belongs.
        name: Of the talk; default: the collection's.
        split: Whether it is trained or tested on.

    Raises:
        ConfigError: No memory is left.
    """
    graph = read_graph(bank, graph_keys)
    pages = tuple(_utterance(graph, row) for row in usable(graph).tolist() if graph.texts[row].strip())
    if not pages:
        raise ConfigError(f"no memory of bank {bank.content.name!r} can be practised on")
    return Talk(name=name or bank.content.name, split=split, pages=pages)


def _utterance(graph: MemoryGraph, row: int) -> Utterance:
    """Return a memory without the date and speaker that a page puts before what was said."""
    text, speaker = graph.texts[row], graph.speakers[row]
    moment, session = float(graph.time[row]), int(graph.session[row])
    time = None if np.isnan(moment) else datetime.fromtimestamp(moment, timezone.utc)
    name = (graph.sessions[session] or NO_SESSION) if session >= 0 else NO_SESSION
    said = line_of(text, speaker)[1]
    if Page(text=said, session=name, speaker=speaker, time=time).stored_text() != text:
        # not a page of ours: the text names its speaker itself, and keeps a date that is not known otherwise
        speaker, said = None, text if time is None else line_of(text, None)[1]
    return Utterance(
        id=graph.ids[row],
        text=said,
        session=name,
        speaker=speaker,
        time=None if time is None else time.isoformat(),
    )
