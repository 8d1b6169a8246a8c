"""Which terms there are: a name for each function that scores a bank.

Does: the decorator that adds a term, look-up by name, and one evaluation that trusts nothing a term returns.

Does not know: what any term looks at, how scores are combined.

Source: none, ours [O].
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np

from shared_core.dynamics.terms.view import BankView, TermResult
from shared_core.errors import ConfigError, DreamError

Need = Literal["values", "embedder", "origins"]
TermFunction: TypeAlias = Callable[[BankView], TermResult]


@dataclass(frozen=True)
class Term:
    """A registered term."""

    name: str
    compute: TermFunction
    needs: frozenset[str]
    """What a bank must have for it; a bank without embedder is refused, other needs make it be skipped."""
    decides: bool
    """It may flag; otherwise it only ranks those that nobody flags."""

    @property
    def summary(self) -> str:
        """Return the first line of the function's docstring."""
        return (self.compute.__doc__ or "").strip().partition("\n")[0]


_TERMS: dict[str, Term] = {}


def activation_term(
    name: str, *, needs: Collection[Need] = (), decides: bool = False
) -> Callable[[TermFunction], TermFunction]:
    """Register a pure function of a bank as a term, to be named in ``ForgettingConfig.terms``.

    A function defined again under the same module and name replaces itself, so a notebook's cell can run
    twice.

    Args:
        name: Lower-case letters, digits and underscores.
        needs: Of ``values``, ``embedder`` and ``origins``, what it cannot do without.
        decides: Whether it may flag memories, by ``flagged`` and ``level`` of its result.

    Raises:
        ConfigError: The name is malformed or taken, or a need is unknown.
    """
    if not (isinstance(name, str) and name.isidentifier() and name.isascii() and name == name.lower()):
        raise ConfigError(f"term name {name!r} must be lower-case letters, digits and underscores")
    if isinstance(needs, str) or (unknown := set(needs) - set(get_args(Need))):
        wrong = needs if isinstance(needs, str) else ", ".join(sorted(map(str, unknown)))
        raise ConfigError(f"term {name!r} needs {wrong!r}: give a set of {', '.join(get_args(Need))}")

    def register(compute: TermFunction) -> TermFunction:
        known = _TERMS.get(name)
        if known is not None and _place(known.compute) != _place(compute):
            raise ConfigError(
                f"there is a term {name!r} already, {_place(known.compute)}: choose another name"
            )
        _TERMS[name] = Term(name, compute, frozenset(needs), decides)
        return compute

    return register


def term_names() -> tuple[str, ...]:
    """Return the names of all terms, in the order of their registration."""
    return tuple(_TERMS)


def find_term(name: str) -> Term:
    """Return a term by name.

    Raises:
        ConfigError: There is none.
    """
    if name not in _TERMS:
        raise ConfigError(
            f"there is no term {name!r}; there are {', '.join(_TERMS)} (one of your own must be imported "
            "before the sweep, so that @activation_term has registered it)"
        )
    return _TERMS[name]


def evaluate_term(term: Term, view: BankView) -> TermResult:
    """Run a term and return what it says, checked.

    Raises:
        ConfigError: It raised, or gave a result that is malformed; the message names the term.
    """
    try:
        result = term.compute(view)
    except DreamError:
        raise
    except Exception as error:
        raise ConfigError(f"term {term.name!r} failed: {type(error).__name__}: {error}") from error
    if not isinstance(result, TermResult):
        raise ConfigError(f"term {term.name!r} returned {type(result).__name__}, not a TermResult")
    score = _scores(term, result, len(view))
    flagged = _flags(term, result, len(view))
    held = None if result.held is None else np.asarray(result.held)
    if held is not None and (held.shape != (len(view),) or held.dtype != np.bool_ or not term.decides):
        raise ConfigError(
            f"term {term.name!r} may hold back memories by a mask of its own shape, if it decides"
        )
    return TermResult(
        score,
        flagged,
        result.level,
        held=held,
        warnings=tuple(result.warnings),
        shared=tuple(result.shared),
        evidence=result.evidence,
    )


def _scores(term: Term, result: TermResult, count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    try:
        score = np.asarray(result.score, np.float64)
    except (TypeError, ValueError):
        raise ConfigError(f"term {term.name!r} gave a score that is no array of numbers") from None
    if score.shape != (count,):
        raise ConfigError(
            f"term {term.name!r} gave a score of shape {score.shape} for {count} memories: one per memory"
        )
    if not np.isfinite(score).all():
        row = int(np.flatnonzero(~np.isfinite(score))[0])
        raise ConfigError(
            f"term {term.name!r} gave memory {row} the score {score[row]}: give a finite number"
        )
    return score


def _flags(term: Term, result: TermResult, count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    given = result.flagged is not None
    flagged = np.asarray(result.flagged) if given else np.zeros(count, np.bool_)
    if flagged.shape != (count,) or flagged.dtype != np.bool_:
        raise ConfigError(
            f"term {term.name!r} gave flags of shape {flagged.shape} and type {flagged.dtype} for {count} "
            "memories: give one bool per memory"
        )
    if not term.decides and (flagged.any() or result.level is not None):
        raise ConfigError(f"term {term.name!r} flags or has a level, and was registered without decides=True")
    level = result.level
    if term.decides and not (isinstance(level, (int, float)) and np.isfinite(level) and level > 0):
        raise ConfigError(f"term {term.name!r} decides and has level={level!r}: give a finite number above 0")
    return flagged


def _place(compute: TermFunction) -> str:
    where = getattr(compute, "__module__", "?"), getattr(compute, "__qualname__", repr(compute))
    return ".".join(where)
