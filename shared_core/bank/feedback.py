"""Online consolidation over stored state: task feedback moves c of the memories that were retrieved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from shared_core.bank.intake import as_list
from shared_core.config import ConsolidationConfig
from shared_core.dynamics import attribute, consolidate
from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core.bank.journal import Run
    from shared_core.bank.state import BankState


def give_feedback(
    state: BankState,
    ids: Sequence[str],
    scores: Sequence[float],
    success: float,
    config: ConsolidationConfig | None = None,
) -> Run:
    """Share a task's success among the memories retrieved for it (source section 3.3, appendix G).

    Args:
        state: State of the bank; its content is not needed.
        ids: The retrieved memories, distinct.
        scores: Their retrieval scores; credit is shared by the softmax over them.
        success: How well the task went, in [0, 1].
        config: Momentum and temperature.

    Raises:
        ConfigError: success outside [0, 1], an id twice, not one score per id, a score that is no number,
            or a config that is none.
    """
    options = ConsolidationConfig() if config is None else config
    if not isinstance(options, ConsolidationConfig):
        raise ConfigError(f"feedback takes a ConsolidationConfig, not {type(options).__name__}")
    if not isinstance(success, (int, float, np.number)) or not 0.0 <= success <= 1.0:
        raise ConfigError(f"success={success!r} is outside [0, 1]")
    scores = as_list("scores", scores)
    if len(scores) != len(ids) or len(set(ids)) != len(ids):
        raise ConfigError(f"{len(scores)} scores for {len(ids)} ids: give one score per id, each id once")
    try:
        given = np.asarray(scores, float)
    except (ValueError, TypeError, OverflowError) as error:
        raise ConfigError(f"scores are not numbers: {error}") from None
    utility = attribute(given, float(success), options.temperature)
    with state.transaction("feedback") as run:
        stored = run.read(ids)
        old = np.array([stored[i]["consolidation"] if i in stored else 1.0 for i in ids])
        done = np.array([stored[i]["successes"] if i in stored else 0.0 for i in ids])
        run.set(
            list(ids),
            {"consolidation": consolidate(old, utility, options.momentum), "successes": done + success},
        )
        run.report = {"memories": len(ids), "success": float(success)}
    return state.run(run.run_id)
