"""Parts of a talk to train and to test on.

Source: none, ours [O]: a bank is one talk, and what is learnt of it must be measured on other memories.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core.training.dataset import Talk, Utterance

UNSEEN = "-unseen"
"""After the name of the part to test on."""


def split_talk(talk: Talk, share: float) -> list[Talk]:
    """Return a talk to train on, and one of its latest memories to test on.

    Sessions stay whole where there are several.

    Args:
        talk: One page or more.
        share: Of the pages to test on, at least; 0 keeps all for training.

    Raises:
        ConfigError: ``share`` is outside [0, 1), or leaves nothing to train on.
    """
    if not 0 <= share < 1:
        raise ConfigError(f"share={share!r} is outside [0, 1)")
    if share == 0:
        return [replace(talk, split="train")]
    several = len({page.session for page in talk.pages}) > 1
    units: dict[str, list[Utterance]] = {}
    # sorted is stable: undated pages stay in their order, before dated ones
    for page in sorted(talk.pages, key=lambda page: page.time or ""):
        units.setdefault(page.session if several else page.id, []).append(page)
    tested: set[str] = set()
    while units and len(tested) < share * len(talk.pages):
        tested.update(page.id for page in units.popitem()[1])
    if not units:
        raise ConfigError(
            f"testing on {share:g} of the {len(talk.pages)} memories of {talk.name!r} leaves none to train "
            "on, since sessions stay whole: give a smaller share, or 0"
        )
    return [
        _part(talk, talk.name, {page.id for page in talk.pages} - tested, test=False),
        _part(talk, f"{talk.name}{UNSEEN}", tested, test=True),
    ]


def _part(talk: Talk, name: str, ids: set[str], *, test: bool) -> Talk:
    return replace(
        talk,
        name=name,
        split="test" if test else "train",
        pages=tuple(page for page in talk.pages if page.id in ids),
        facts=tuple(fact for fact in talk.facts if fact.page in ids),
    )
