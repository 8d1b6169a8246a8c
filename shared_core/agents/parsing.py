"""Reading what a chat model answered: JSON out of prose, strict types, known pages, nothing invented.

A reply is a claim to be checked. What passes is safe by construction: an answer is a slice of its page, a
quote is whole sentences of its page, a question names nothing that its pages do not, and every
page is one that was shown. No word of a model's own ever reaches a reader.

Source: verbatim answers and no loss of information are MemDream's (section 3.2, appendices C, H) [S]; the
checks are ours [O].
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shared_core.agents.prompts import ShownPage
from shared_core.errors import ChatReplyError
from shared_core.language import Source, content_words, unsupported
from shared_core.language.tokens import sentence_spans

JSON, PAGE, VERBATIM, INVENTED, LOST, UNFIT = (
    "invalid JSON",
    "unknown page",
    "not verbatim",
    "unsupported fact",
    "lost fact",
    "unfit text",
)
"""Reasons why a reply is refused."""
REPLY_CHARACTERS = 20_000
"""Of a reply that are read."""
STARTS = 50
"""Places at which a JSON object is tried."""
_SPACES = re.compile(r"\s+")

Model = TypeVar("Model", bound=BaseModel)
# llama.cpp makes a grammar of the schema, knows no \d, and crashes the process over it
Name = Annotated[str, Field(pattern=r"^p[0-9]{1,3}$")]


class _Reply(BaseModel):
    # extra fields are common and harmless: nothing reads them
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class QuestionReply(_Reply):
    """A probe."""

    question: str = Field(min_length=8, max_length=300)
    answer: str = Field(min_length=1, max_length=300)
    page: Name


class DiagnosisReply(_Reply):
    """A cause and the pages that have it, worst first."""

    cause: Literal["buried", "scattered", "redundant", "noisy"]
    pages: list[Name] = Field(min_length=1, max_length=20)
    confidence: float = Field(default=0.5, ge=0.0, le=1.0)


class Excerpt(_Reply):
    """A text copied from a page."""

    page: Name
    text: str = Field(min_length=1, max_length=600)


class QuotesReply(_Reply):
    """Sentences of pages."""

    quotes: list[Excerpt] = Field(min_length=1, max_length=40)


def read_reply(text: str, form: type[Model]) -> Model:
    """Return the first JSON object in a reply that fits a form; prose and code fences around it are ignored.

    Raises:
        ChatReplyError: None fits.
    """
    problem = "it holds no JSON object."
    for found in _objects(text[:REPLY_CHARACTERS]):
        try:
            return form.model_validate(found)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            problem = f"field {'.'.join(map(str, first['loc']))}: {first['msg']}."
    raise ChatReplyError(problem, JSON)


def known(names: Sequence[str], pages: Mapping[str, ShownPage]) -> list[str]:
    """Return the memory ids behind names, each once.

    Raises:
        ChatReplyError: A name was not shown.
    """
    if strange := [name for name in names if name not in pages]:
        raise ChatReplyError(f"{strange[0]} is no page that was shown; they are {', '.join(pages)}.", PAGE)
    return list(dict.fromkeys(pages[name].memory_id for name in names))


def verbatim(quote: str, text: str) -> str:
    """Return the slice of a text that a quote copies, with the text's own spaces and brackets.

    Raises:
        ChatReplyError: The text does not contain it.
    """
    pieces = [_letters(piece) for piece in _SPACES.split(quote.strip()) if piece]
    match = re.search(r"\s+".join(pieces), text) if pieces else None
    if match is None:
        raise ChatReplyError("a quote or answer is not copied letter by letter from its page.", VERBATIM)
    return match.group()


def whole_sentences(quote: str, text: str) -> list[str]:
    """Return the sentences of a text that a quote copies a part of: a part alone can turn the sense round.

    Raises:
        ChatReplyError: The text does not contain the quote.
    """
    start = text.index(copied := verbatim(quote, text))
    return [text[a:b] for a, b in sentence_spans(text) if a < start + len(copied) and start < b]


def check_question(reply: QuestionReply, pages: Mapping[str, ShownPage]) -> tuple[str, str]:
    """Return the question, and the answer as its page has it.

    Raises:
        ChatReplyError: An unknown page, an answer that is not in it, a question that gives the answer away
            or names what no page does.
    """
    known([reply.page], pages)
    answer = verbatim(reply.answer, pages[reply.page].text)
    if not content_words(answer):
        raise ChatReplyError("the answer says nothing.", UNFIT)
    question = " ".join(reply.question.split())
    if " ".join(answer.casefold().split()) in question.casefold() or not content_words(question):
        raise ChatReplyError("the question gives its answer away or asks nothing.", UNFIT)
    check_supported(question, [Source(page.text) for page in pages.values()])
    return question, answer


def check_supported(text: str, sources: Sequence[Source]) -> None:
    """Check that a text states nothing that its sources do not.

    Raises:
        ChatReplyError: A name, number or date is not theirs.
    """
    if invented := unsupported(text, sources):
        raise ChatReplyError(f"{invented[0].text!r} stands in no page that was shown.", INVENTED)


def check_nothing_lost(text: str, sources: Sequence[Source]) -> None:
    """Check that a text keeps every name, number, date and content word of its sources.

    Raises:
        ChatReplyError: Something is missing.
    """
    kept = set(content_words(text, stem=True))
    for source in sources:
        if lost := unsupported(source.text, [Source(text, source.day)]):
            raise ChatReplyError(f"{lost[0].text!r} got lost.", LOST)
        if missing := sorted(set(content_words(source.text, stem=True)) - kept):
            raise ChatReplyError(f"what a page says with {missing[0]!r} got lost.", LOST)


def _objects(text: str) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder(parse_constant=_no_constant)
    at = 0
    for _ in range(STARTS):
        at = text.find("{", at)
        if at < 0:
            return
        try:
            found, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
            continue
        if isinstance(found, dict):
            yield found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _letters(piece: str) -> str:
    # the prompt shows brackets and quotes in a form that no chat template reads as its own
    return re.escape(piece).replace("‹", "[‹<]").replace("›", "[›>]").replace("'", "['’]")
