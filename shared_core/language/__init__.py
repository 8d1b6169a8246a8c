"""Reading plain text: entities, dates, sentences and words, and whether a derived text is supported."""

from shared_core.language.dates import DateMention, annotate, resolve_dates
from shared_core.language.entities import (
    Entity,
    EntityExtractor,
    EntityKind,
    RuleExtractor,
    extract_entities,
    fold_plural,
)
from shared_core.language.names import normalise_name
from shared_core.language.quoting import Source, unsupported
from shared_core.language.spacy_extractor import SpacyExtractor
from shared_core.language.tokens import content_words, estimate_tokens, split_sentences, stem_words, words

__all__ = [
    "DateMention",
    "Entity",
    "EntityExtractor",
    "EntityKind",
    "RuleExtractor",
    "Source",
    "SpacyExtractor",
    "annotate",
    "content_words",
    "estimate_tokens",
    "extract_entities",
    "fold_plural",
    "normalise_name",
    "resolve_dates",
    "split_sentences",
    "stem_words",
    "unsupported",
    "words",
]
