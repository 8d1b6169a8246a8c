"""The terms of preset ``hardened`` for a stored bank: its texts and embedder in, a verdict and warnings out.

Joins ``dynamics.terms`` (which knows no storage) to a bank's content; reads only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from shared_core.bank.known_fields import KnownFields, known_fields
from shared_core.bank.quarantine import quarantined_ids
from shared_core.config import HARDENED_TERMS
from shared_core.dynamics.geometry import unit_rows
from shared_core.dynamics.terms import BankView, Verdict, find_term, judge, requests_alone
from shared_core.errors import ConfigError, DimensionMismatchError
from shared_core.language.counting import counted

if TYPE_CHECKING:
    from shared_core.bank.deciding import Decisions
    from shared_core.bank.memory_bank import MemoryBank
    from shared_core.config import ForgettingConfig
    from shared_core.types import BoolArray, Embedder, FloatArray

CHECKED_KEYS = 5
SAME_MODEL = 0.5
"""Median cosine of keys embedded anew with their stored embeddings, from which those are of the keys [O]."""
RELATED_MODEL = 0.25
"""And below which the model is another; between the two, more than the keys was embedded [O]."""
SHOWN_SETS = 20
SHOWN_CHARACTERS = 300
_BLOCK = 4096


@dataclass(frozen=True)
class Diagnosed:
    """What a sweep needs of the terms; empty for preset ``paper``, whose sweep probes by itself."""

    verdict: Verdict | None = None
    warnings: list[str] = field(default_factory=list)
    told: Mapping[str, Any] = field(default_factory=dict)
    """What the journal keeps of it beside the config, see ``KnownFields``."""

    def reason(self, row: int) -> str | None:
        """Return why a memory was flagged, in words; None where it was not."""
        evidence = self.verdict.evidence(row) if self.verdict is not None else None
        return None if evidence is None else evidence.text

    def values(self, row: int) -> dict[str, float]:
        """Return what each term says of a memory; nothing for preset ``paper``."""
        return {} if self.verdict is None else self.verdict.values(row)


def diagnose(
    bank: MemoryBank,
    ids: Sequence[str],
    stored: Callable[[], FloatArray],
    config: ForgettingConfig,
    decided: Decisions,
) -> Diagnosed:
    """Let the terms judge the memories that take part in a sweep; nothing for preset ``paper``.

    Args:
        bank: See ``judge_bank``.
        ids: N ids.
        stored: Gives the embeddings, (N, d) as stored, every row with a direction; called where terms decide.
        config: Diagnosis, terms, constants and seed.
        decided: What a person decided about the bank's memories.

    Raises:
        ConfigError: See ``judge_bank``.
        DimensionMismatchError: The embedder's vectors have another dimension than the stored ones.
    """
    if config.diagnosis != "coupling":
        return Diagnosed()
    return Diagnosed(*judge_bank(bank, ids, stored(), config, decided))


def judge_bank(
    bank: MemoryBank,
    ids: Sequence[str],
    embeddings: FloatArray,
    config: ForgettingConfig,
    decided: Decisions,
) -> tuple[Verdict, list[str], dict[str, Any]]:
    """Run the terms that ``config`` names on stored memories, whatever its diagnosis.

    Args:
        bank: Its texts, its values and origins (metadata fields ``value_key``, ``origin_key``, else those of
            an earlier sweep) and its embedder are used.
        ids: N ids.
        embeddings: (N, d) as stored, every row with a direction.
        config: Diagnosis, terms, constants and seed.
        decided: What a person decided about the bank's memories.

    Returns:
        The verdict, warnings about what the terms could not see, what the journal keeps beside the config.

    Raises:
        ConfigError: A term is unknown or failed, or needs an embedder and the bank has none, or one that does
            not give the stored embeddings.
        DimensionMismatchError: The embedder's vectors have another dimension than the stored ones.
    """
    embeds = [name for name in config.terms if "embedder" in find_term(name).needs]
    if embeds and bank.embedder is None:
        raise ConfigError(
            f"preset 'hardened' embeds parts of the memories again (term {embeds[0]!r}) and this bank has no "
            "embedder: open it with embedder=..., the one that it was filled with (dream forget: --embedder "
            "minilm, or the directory of a model)"
        )
    matrix = np.asarray(embeddings, np.float32)
    embed = _embedding(bank.embedder, matrix.shape[1]) if embeds and bank.embedder is not None else None
    fields = known_fields(bank)
    view = _view(bank, ids, matrix, embed, config, fields, decided.trusts(ids))
    anew: list[str] = []
    if embed is not None and not _are_of_the_keys(view.keys, view.unit, embed):
        # of a memory removed meanwhile there is no text, and some models refuse to embed nothing
        view = replace(view, unit=embed([key if key.strip() else "-" for key in view.keys]))
        anew.append(
            f"the stored embeddings are of more than the texts, such as metadata before them: all {len(ids)} "
            "texts were embedded anew for the diagnosis"
        )
    view, apart = _requests_alone(view)
    verdict, told = judge(view), fields.told(values=view.values is not None)
    if not ids:
        return verdict, ["the bank is empty: there is nothing to diagnose"], told
    warnings = [*fields.notes, *anew, *apart, *_absences(fields, view, verdict), *verdict.warnings]
    warnings += _shared_words(verdict, ids)
    if not _can_judge(verdict, config):
        verdict, held = _holding_the_unjudged(bank, ids, verdict)
        warnings += held
    elif view.values is None and fields.saw_values:
        verdict, held = _holding(verdict, _doubted(bank, ids), _SAW_VALUES)
        warnings += held
    return verdict, warnings, told


def _shared_words(verdict: Verdict, ids: Sequence[str]) -> list[str]:
    """Return what a person has to judge: words that memories of different content state."""
    told = [
        f"{len(words.rows)} memories of different content, such as {ids[int(words.rows[0])]!r}, state "
        f"{_quoted(words.span)!r}: a planted rule, or a signature. Their weights stay as they are. `dream "
        "explain` names the others. Restore three that are genuine: they vouch for these words. What is left "
        "of all such sets, repeated='flag' (dream forget --repeated flag) forgets"
        for words in verdict.shared[:SHOWN_SETS]
    ]
    more = len(verdict.shared) - len(told)
    return [*told, f"{more} more sets of memories state the same words"] if more > 0 else told


def _quoted(words: str) -> str:
    """Return a stretch whole, or its beginning and end: what matters may stand in either."""
    if len(words) <= SHOWN_CHARACTERS:
        return words
    half = SHOWN_CHARACTERS // 2
    return f"{words[:half]} ... {words[-half:]}"


def _requests_alone(view: BankView) -> tuple[BankView, list[str]]:
    """Return a view whose texts do not repeat their values, and a note that says so."""
    if view.values is None or view.embed is None:
        return view, []
    alone = requests_alone(view.keys, view.values)
    if not alone:
        return view, []
    keys, unit = list(view.keys), view.unit.copy()
    for row, request in alone.items():
        keys[row] = request
    unit[list(alone)] = view.embed(list(alone.values()))
    note = (
        f"{len(alone)} texts hold their value too: it was left out of them, and they were embedded anew, for "
        "the diagnosis"
    )
    return replace(view, keys=keys, unit=unit, whole=(view.keys, view.unit)), [note]


_SAW_VALUES = (
    "left as before: {} that an earlier sweep doubted, which saw values, and this one sees none; give its "
    "value_key, or restore what is genuine"
)
_DOUBTED = (
    "left as before: {} that an earlier sweep doubted, for this one can flag nobody; sweep the whole bank, "
    "or restore what is genuine"
)
_WAITING = (
    "left in quarantine: {}, for this sweep can flag nobody; sweep when there are more, or the whole bank, "
    "or restore what is genuine"
)


def _can_judge(verdict: Verdict, config: ForgettingConfig) -> bool:
    """Tell whether any term of a verdict could have flagged anybody."""
    if config.diagnosis != "coupling":
        return True
    constants = config.coupling
    least = max(constants.min_bank, constants.least_bank)
    return any(
        scored.term.decides and (scored.term.name != "coupling" or len(verdict.flagged) >= least)
        for scored in verdict.terms
    )


def _holding_the_unjudged(
    bank: MemoryBank, ids: Sequence[str], verdict: Verdict
) -> tuple[Verdict, list[str]]:
    """Return a verdict that lifts no quarantine and clears nobody: it says nothing for them."""
    waiting = set(quarantined_ids(bank.state, ids))
    rows = np.fromiter((memory_id in waiting for memory_id in ids), np.bool_, len(ids))
    verdict, told = _holding(verdict, rows, _WAITING)
    verdict, more = _holding(verdict, _doubted(bank, ids) & ~rows, _DOUBTED)
    return verdict, [*told, *more]


def _doubted(bank: MemoryBank, ids: Sequence[str]) -> BoolArray:
    doubted: BoolArray = bank.state.columns().gather(ids, "suspicion") > 0.0
    return doubted


def _holding(verdict: Verdict, rows: BoolArray, why: str) -> tuple[Verdict, list[str]]:
    """Return a verdict that leaves some memories as they are, and a warning that says so.

    Args:
        verdict: Of N memories.
        rows: (N,) which; flagged ones are lowered all the same.
        why: The warning, with a place for how many.
    """
    kept = rows & ~verdict.flagged
    if not kept.any():
        return verdict, []
    held = kept if verdict.held is None else kept | verdict.held
    return replace(verdict, held=held), [why.format(counted(int(kept.sum()), "memory"))]


def _view(
    bank: MemoryBank,
    ids: Sequence[str],
    matrix: FloatArray,
    embed: Callable[[list[str]], FloatArray] | None,
    config: ForgettingConfig,
    fields: KnownFields,
    trusted: BoolArray,
) -> BankView:
    records = bank.content.get(ids)
    # removed by another process since the embeddings were read: nothing to compare
    found = [records.get(memory_id) for memory_id in ids]
    metadata = [{} if record is None else record.metadata for record in found]
    unit, norms = _directions(matrix)
    return BankView(
        keys=["" if record is None else record.text for record in found],
        values=_column(metadata, fields.value_key),
        unit=unit,
        embed=embed,
        origins=_column(metadata, fields.origin_key),
        config=config,
        norms=norms,
        trusted=trusted,
    )


def _directions(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return unit rows and (N,) norms; what is needed on the way does not grow with the bank."""
    unit, norms = np.empty_like(matrix), np.empty(len(matrix))
    for start in range(0, len(matrix), _BLOCK):
        part = matrix[start : start + _BLOCK]
        unit[start : start + _BLOCK] = unit_rows(part)
        norms[start : start + _BLOCK] = np.linalg.norm(part.astype(np.float64), axis=1)
    return unit, norms


def _column(metadata: Sequence[Mapping[str, Any]], name: str | None) -> list[str] | None:
    """Return one metadata field as text, "" where a memory has none; None where no memory has it."""
    if name is None:
        return None
    stored = [row.get(name) for row in metadata]
    texts = ["" if value is None else str(value) for value in stored]
    return texts if any(texts) else None


def _absences(known: KnownFields, view: BankView, verdict: Verdict) -> list[str]:
    """Return what the bank does not have, and which terms see less or nothing for it."""
    effects: dict[str, list[str]] = {"values": [], "origins": []}
    if view.values is None and "coupling" in view.config.terms:
        effects["values"].append(
            "a planted rule is told, and forgotten only where it extends several existing texts"
        )
    for name, need in verdict.skipped:
        # the preset's own terms that only rank are there for the banks that have origins
        if find_term(name).decides or name not in HARDENED_TERMS:
            effects[need].append(f"term {name} is skipped")
    fields = {"values": ("value_key", known.value_key), "origins": ("origin_key", known.origin_key)}
    found = []
    for need, what in effects.items():
        if what:
            option, key = fields[need]
            flag = option.replace("_", "-")
            why = (
                f"the bank has no {option} (dream forget: --{flag} NAME)"
                if key is None
                else f"no memory has a value under {key!r}"
            )
            found.append(f"{why}: without {need} {', '.join(what)}")
    if view.config.diagnosis == "coupling" and not any(scored.term.decides for scored in verdict.terms):
        found.append(f"none of the terms {', '.join(view.config.terms)} decides: nothing can be flagged")
    return found


def _embedding(embedder: Embedder, dimension: int) -> Callable[[list[str]], FloatArray]:
    def embed(texts: list[str]) -> FloatArray:
        matrix = np.asarray(embedder.embed_documents(texts), np.float32)
        if matrix.shape != (len(texts), dimension):
            raise DimensionMismatchError(
                f"the embedder gives an array of shape {matrix.shape} for {len(texts)} texts and the "
                f"collection has dimension {dimension}: pass the embedder that the collection was filled with"
            )
        if not np.isfinite(matrix).all():
            raise ConfigError("the embedder gives values that are not finite for parts of the memories")
        return unit_rows(matrix)

    return embed


def _are_of_the_keys(keys: Sequence[str], unit: FloatArray, embed: Callable[[list[str]], FloatArray]) -> bool:
    """Embed a few keys again and tell whether the stored embeddings are theirs.

    LlamaIndex puts a node's metadata before its text when it embeds it. Another model of the same dimension
    would be wrong without a word.

    Raises:
        ConfigError: It is another model.
    """
    rows = [row for row, key in enumerate(keys) if key.strip()]
    rows = rows[:: max(1, len(rows) // CHECKED_KEYS)][:CHECKED_KEYS]
    if not rows:
        return True
    cosines = np.einsum("ij,ij->i", embed([keys[row] for row in rows]), unit[rows])
    agreement = float(np.median(cosines))
    if agreement < RELATED_MODEL:
        raise ConfigError(
            f"the embedder does not give the stored embeddings (median cosine {agreement:.2f} on {len(rows)} "
            f"keys, expected {RELATED_MODEL} or more): pass the embedder that it was filled with; "
            "if it is, embed less metadata with the texts (LlamaIndex: excluded_embed_metadata_keys)"
        )
    return agreement >= SAME_MODEL
