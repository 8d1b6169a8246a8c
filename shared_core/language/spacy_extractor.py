"""Names from a spaCy pipeline that the user brings, in the place of the rules for names."""

from __future__ import annotations

from datetime import date
from typing import Any

from shared_core.errors import MissingExtraError
from shared_core.language.entities import Entity, EntityKind, RuleExtractor
from shared_core.language.names import normalise_name

_SPACY_KINDS: dict[str, EntityKind] = {
    "PERSON": "name",
    "NORP": "name",
    "FAC": "name",
    "ORG": "name",
    "GPE": "name",
    "LOC": "name",
    "PRODUCT": "name",
    "EVENT": "name",
    "LANGUAGE": "name",
    "LAW": "name",
    "WORK_OF_ART": "quote",
    "PER": "name",
    "MISC": "name",
}


class SpacyExtractor:
    """Names from a spaCy pipeline of yours, everything else from the rules; satisfies EntityExtractor.

    Args:
        nlp: A loaded pipeline with named entities, ``spacy.load("en_core_web_sm")``; none is loaded for you.
        day: As in RuleExtractor.
        concepts: As in RuleExtractor.

    Raises:
        MissingExtraError: spaCy is not installed.
    """

    def __init__(self, nlp: Any, *, day: date | None = None, concepts: bool = False) -> None:
        try:
            import spacy  # noqa: F401
        except ImportError as error:
            raise MissingExtraError("spacy", "spacy") from error
        self._nlp = nlp
        self._rules = RuleExtractor(day=day, concepts=concepts)

    def __call__(self, text: str, *, speaker: str | None = None) -> frozenset[Entity]:
        """Return the entities of a text."""
        plain = (entity for entity in self._rules(text, speaker=speaker) if entity.kind != "name")
        named = (
            Entity(kind, span.text, normalise_name(span.text) if kind == "name" else span.text.casefold())
            for span in self._nlp(text).ents
            if (kind := _SPACY_KINDS.get(span.label_))
        )
        spoken = [Entity("name", speaker.strip(), normalise_name(speaker))] if speaker else []
        unique = {(entity.kind, entity.norm): entity for entity in (*plain, *named, *spoken) if entity.norm}
        return frozenset(unique.values())
