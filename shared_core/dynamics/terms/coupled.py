"""The term ``coupling``: one planted rule, trigger words in requests and a payload in values.

Does: runs ``find_coupling`` on a bank, and says in words what was found, what was refused and what it could
not see.

Does not know: how groups are found and scored, which is ``dynamics.coupling``.

Source: none, ours [O].
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shared_core.dynamics.coupling import CouplingResult, Group, find_coupling
from shared_core.dynamics.terms.registry import activation_term
from shared_core.dynamics.terms.view import BankView, SharedWords, TermEvidence, TermResult
from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core.config import ForgettingConfig

SHOWN_SPAN = 80
NEIGHBOURS = 20


@activation_term("coupling", needs={"embedder"}, decides=True)
def coupling(view: BankView) -> TermResult:
    """A stretch of words that several unrelated requests share, with a payload in their values.

    Without values only a span that extends several existing keys can be found, and a long stretch of words
    that unlike texts share, which is reported, see ``CouplingConfig.repeated``.

    Args:
        view: Its keys, values, embeddings and embedder are used.

    Returns:
        Score of the strongest group that a memory belongs to, 0 to 64, flagged from ``CouplingConfig.flag``.
    """
    if view.embed is None:
        raise ConfigError("term 'coupling' embeds parts of the memories again: give the bank an embedder")
    constants = replace(view.config.coupling, seed=view.config.seed)
    found = find_coupling(
        view.keys,
        view.values,
        view.unit,
        view.embed,
        constants,
        trusted=view.trusted,
        whole=view.whole,
    )

    def evidence(row: int) -> TermEvidence | None:
        group = found.group_of(row) or found.reported_for(row)
        return None if group is None else _evidence(group, row)

    return TermResult(
        score=found.score,
        flagged=found.flagged,
        level=constants.flag,
        held=found.held,
        warnings=tuple(_warnings(len(view), found, view.config)),
        shared=tuple(SharedWords(group.key_span, group.members) for group in found.reported),
        evidence=evidence,
    )


def _evidence(group: Group, row: int) -> TermEvidence:
    shown = [other for other in group.members[: NEIGHBOURS + 1].tolist() if other != row]
    return TermEvidence(
        text=_reason(group, len(group.members) - 1),
        span=group.key_span,
        payload=group.payload_span,
        neighbours=tuple(shown[:NEIGHBOURS]),
        details={
            "members": float(len(group.members)),
            "payload_words": group.payload,
            "gain": group.gain,
            "unexplained": group.unexplained,
            "extended": group.extended,
            "group_score": group.score,
        },
    )


def _reason(group: Group, others: int) -> str:
    if group.repeated:
        return f"states {_span(group.key_span)!r}, as do {others} others of different content"
    if not group.payload_span:
        return f"shares {_span(group.key_span)!r} with {others} others, which extend other memories' requests"
    return (
        f"shares {_span(group.key_span)!r} in its request and {_span(group.payload_span)!r} in its value "
        f"with {others} others"
    )


def _span(span: str) -> str:
    text = span.strip(" .,;:!?()[]'\"") or span
    return text if len(text) <= SHOWN_SPAN else f"{text[: SHOWN_SPAN - 3]}..."


def _warnings(count: int, found: CouplingResult, config: ForgettingConfig) -> list[str]:
    """Return what was refused, or not looked at, because of a limit."""
    warnings = []
    least = config.coupling.min_outside
    if count < config.coupling.least_bank:
        warnings.append(
            f"the bank has {count} memories: a group is compared with at least {least} others, so that "
            "term coupling can flag nothing"
        )
    warnings += [
        f"{len(group.members)} memories share {_span(group.key_span)!r} and were NOT flagged: with them more "
        f"than {config.coupling.max_flagged:.0%} of the bank would be; look at them yourself"
        for group in found.groups
        if not group.flagged
    ]
    if found.unexamined:
        warnings.append(
            f"{found.unexamined} sets of similar memories were not looked at: the bank shares more text than "
            "max_candidates, max_measured and max_work allow for"
        )
    return warnings
