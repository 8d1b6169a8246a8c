"""Which page a message becomes, and under which id."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from shared_core.bank.turns import Turn, pages_from_turns
from shared_core.errors import InvalidMemoryError

NOON = datetime(2024, 5, 8, 12, tzinfo=timezone.utc)


def turns(*said: tuple[str, str]) -> list[Turn]:
    return [
        Turn(role=role, text=text, id=f"m{at}", position=at)  # type: ignore[arg-type]
        for at, (role, text) in enumerate(said)
    ]


def test_one_page_per_utterance() -> None:
    pages = pages_from_turns(
        turns(("user", " Hi "), ("assistant", ""), ("user", "Yo")), session="s", time=NOON
    )
    assert [(page.id, page.stored_text()) for page in pages] == [
        ("m0", "(8 May 2024) user: Hi"),
        ("m2", "(8 May 2024) user: Yo"),
    ]


def test_exchanges_hold_all_answers_and_the_last_one_waits() -> None:
    said = turns(
        ("assistant", "Welcome"),
        ("user", "Which dog?"),
        ("user", "Mine, I mean"),
        ("assistant", "Looking it up"),
        ("tool", "Rex"),
        ("assistant", "Rex"),
        ("user", "Thanks"),
    )
    pages = pages_from_turns(said, session="s", exchanges=True, names=("Ada", "Bot"))
    assert [(page.id, page.speaker, page.text) for page in pages] == [
        ("m0", "Bot", "Welcome"),
        ("m1", "Ada", "Which dog?\nAda: Mine, I mean\nBot: Looking it up\ntool: Rex\nBot: Rex"),
    ]


def test_without_ids_a_position_makes_them_stable() -> None:
    said = [Turn(role="user", text="ok", position=0), Turn(role="user", text="ok", position=1)]
    assert [page.id for page in pages_from_turns(said, session="s", start=4)] == ["s/4", "s/5"]
    one, other = (pages_from_turns(said, session="s") for _ in range(2))
    assert len({page.id for page in [*one, *other]}) == 4


@pytest.mark.parametrize(("session", "start"), [("", None), (None, None), ("s", -1)])
def test_what_makes_no_sense_is_refused(session: str, start: int | None) -> None:
    with pytest.raises(InvalidMemoryError):
        pages_from_turns(turns(("user", "Hi")), session=session, start=start)
