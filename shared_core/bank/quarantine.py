"""Quarantine at write time: a memory that no sweep has seen counts for less [O].

A bank in quarantine gives every memory that no journalled run has touched the weight q, whoever wrote it and
however: nothing is stored for such a memory, so that one which another program writes into the collection is
in quarantine from the instant it is there. The first sweep that takes it in moves it from q, as it moves any
weight: up by alpha_rec where it is stable (0.5 becomes 0.9999 within ten iterations), down where it is not.

That a bank is in quarantine is itself a run in the journal: any process that opens the bank follows it, and
undoing the run ends it. What stood in the collection when quarantine began is known and keeps its weight.

Does not know: why a memory is suspect, similarity, retrieval. The papers have no quarantine.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlalchemy import select

from shared_core.bank.columns import DEFAULTS
from shared_core.bank.schema import among, changes, reading, runs
from shared_core.errors import ConfigError, StateError

if TYPE_CHECKING:
    from shared_core.bank.chroma import ChromaContent
    from shared_core.bank.journal import Run
    from shared_core.bank.state import BankState

KIND = "quarantine"
FULL = DEFAULTS["weight"]


def apply_quarantine(content: ChromaContent, state: BankState, weight: float | None = None) -> Run | None:
    """Make a bank that is being opened follow its quarantine, or begin, change or end it.

    Args:
        content: The bank's content; read only where a quarantine begins.
        state: Its state.
        weight: q in [0, 1]; 1 ends a quarantine, None leaves things as the journal has them.

    Returns:
        The run that changed the setting; None where nothing changed.

    Raises:
        ConfigError: The weight is outside [0, 1].
    """
    if weight is not None and not (
        isinstance(weight, (int, float)) and not isinstance(weight, bool) and 0 <= weight <= 1
    ):
        raise ConfigError(f"quarantine={weight!r} must be a weight in [0, 1], or None; 1 ends a quarantine")
    found = _journalled_weight(state)
    if weight is None or weight == found:
        state.start_unseen_at(found)
        return None
    state.start_unseen_at(FULL)
    present = content.ids() if found == FULL else []
    with state.transaction(KIND) as run:
        run.config = {"weight": float(weight)}
        run.report = {"known": run.know(present), "before": found}
    state.start_unseen_at(float(weight))
    return state.run(run.run_id)


def quarantined_ids(state: BankState, ids: Sequence[str]) -> list[str]:
    """Return which memories no run has judged since they were added; none in a bank without quarantine.

    A memory leaves quarantine by any run that changed its weight: a sweep, ``restore``, ``set_weights``. One
    that gave it exactly the weight q, and an undone one, count as none.
    """
    weight = state.unseen_weight
    if weight == FULL or not ids:
        return []
    columns = state.columns()
    held = columns.gather(ids, "weight") == weight
    waiting = held & (columns.gather(ids, "deleted") == 0.0)
    candidates = [memory_id for memory_id, waits in zip(ids, waiting, strict=True) if waits]
    last = _last_judged(state, candidates)
    return [memory_id for memory_id in candidates if last.get(memory_id, "add") == "add"]


def _journalled_weight(state: BankState) -> float:
    """Return q of the newest run that set it and still holds; a tenant follows its own and everybody's."""
    query = (
        select(runs.c.config)
        .where(
            runs.c.bank_id == state.bank_id,
            runs.c.kind == KIND,
            runs.c.status == "applied",
            runs.c.scope.in_({"", state.scope}),
        )
        .order_by(runs.c.version.desc())
        .limit(1)
    )
    with reading(state.engine) as connection:
        config = connection.execute(query).scalar()
    if config is None:
        return FULL
    try:
        weight = float(json.loads(config)["weight"])
    except (ValueError, TypeError, KeyError, RecursionError):
        weight = -1.0
    if not 0 <= weight <= 1:
        raise StateError(f"the journal was altered: its quarantine has no weight in [0, 1] ({config[:60]!r})")
    return weight


def _last_judged(state: BankState, ids: Sequence[str]) -> dict[str, str]:
    """Return the kind of the last applied run that added each memory or changed its weight."""
    if not ids:
        return {}
    with reading(state.engine) as connection:
        query = (
            select(changes.c.memory_id, runs.c.kind)
            .join(runs, runs.c.run_id == changes.c.run_id)
            .where(
                runs.c.bank_id == state.bank_id,
                runs.c.status == "applied",
                runs.c.kind != "undo",
                changes.c.field == "weight",
                among(connection, changes.c.memory_id, ids),
            )
            .order_by(runs.c.version)
        )
        return {row.memory_id: row.kind for row in connection.execute(query)}
