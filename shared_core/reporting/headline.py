"""How a memory is, in one sentence, and what to do next. Pure: numbers in, words out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from shared_core.reporting.choosing import shortened
from shared_core.reporting.data import Advice, Headline
from shared_core.reporting.shell import command_line

if TYPE_CHECKING:
    from shared_core.bank.journal import Run
    from shared_core.reporting.data import BankFacts, Counts, Tone

MINUTE, HOUR, DAY = 60, 3600, 86_400
STALE_DAYS = 7
"""Since the last sweep, from which another is advised [O]."""

NEVER_DREAMT = "It never dreamt: a trial shows which repairs a dream would make, and writes nothing."
SWEEP_FIRST = (
    "Look for poison first; --dry-run changes nothing. Add the options of your bank, such as --value-key."
)
SWEEP_AGAIN = "Sweep again; --dry-run shows first what it would do, and changes nothing."
SHOWN_WARNINGS = 5
WARNING_CHARACTERS = 800
READ = "Read the suspects and why they are doubted. Give what is genuine its weight back."


def headline(bank: BankFacts, counts: Counts, sweep: Run | None, now: float, place: str | None) -> Headline:
    """Return the sentence that stands above everything.

    Args:
        bank: Which bank.
        counts: Its numbers.
        sweep: The last applied one.
        now: Unix time.
        place: Of ``shell.place_of``; None: advice comes without commands.
    """

    def command(verb: str, last: str) -> str | None:
        return None if place is None else command_line(verb, place, last)

    known = _amount(counts.memories, "memory", "memories")
    advice: list[Advice] = []
    if bank.locked_by:
        advice.append(Advice(text=f"A dream is at work now ({bank.locked_by}): look again when it is done."))
    if counts.memories == 0:
        gone = f", {counts.deleted:,} softly deleted" if counts.deleted else ""
        return Headline(tone="calm", sentence=f"This memory is empty{gone}.", advice=tuple(advice))
    if sweep is None:
        advice.append(Advice(text=SWEEP_FIRST, command=command("forget", "--dry-run")))
        sentence = f"{known}, never swept: nothing has looked for poison yet."
        return Headline(tone="look", sentence=sentence, advice=(*advice, *_dream(counts, command)))
    took = sweep.report.get("memories")
    more = counts.memories - counts.derived - took if isinstance(took, int) else 0
    stale = now - sweep.created_at > STALE_DAYS * DAY
    if counts.suspects:
        advice.append(Advice(text=READ, section="suspects"))
    warned = _warnings(sweep)
    advice += [Advice(text=f"The last sweep warned: {warning}") for warning in warned]
    if more > 0 or stale:
        advice.append(Advice(text=SWEEP_AGAIN, command=command("forget", "--dry-run")))
    sentence = (
        f"{known}, {_amount(counts.suspects, 'suspect', 'suspects')}, "
        f"last sweep {ago(now - sweep.created_at)}: "
        f"{_verdict(counts.suspects, more, stale=stale, warned=bool(warned))}."
    )
    tone: Tone = "act" if counts.suspects else "look" if more > 0 or stale or warned else "calm"
    return Headline(tone=tone, sentence=sentence, advice=(*advice, *_dream(counts, command)))


def ago(seconds: float) -> str:
    """Return a span of time as people say it."""
    for unit, name in ((DAY, "day"), (HOUR, "hour"), (MINUTE, "minute")):
        if seconds >= unit:
            return f"{_amount(int(seconds // unit), name, name + 's')} ago"
    return "just now"


def _warnings(sweep: Run) -> list[str]:
    """Return what a sweep could not see or decide; it quotes memories, and a journal may be altered."""
    told = sweep.report.get("warnings")
    lines = [line for line in told if isinstance(line, str)] if isinstance(told, list) else []
    shown = [shortened(line, WARNING_CHARACTERS) for line in lines[:SHOWN_WARNINGS]]
    more = len(lines) - len(shown)
    return [*shown, f"and {more} more, which stand in the run's report"] if more else shown


def _verdict(suspects: int, more: int, *, stale: bool, warned: bool) -> str:
    newer = f"{more:,} {'has' if more == 1 else 'have'} come since that no sweep has seen"
    if suspects:
        least = "the suspect counts" if suspects == 1 else "the suspects count"
        return f"{least} for little in retrieval" + (f", and {newer}" if more > 0 else "")
    if more > 0:
        return f"nothing is suspect, but {newer}"
    if stale:
        return "nothing is suspect, but that was a while ago"
    return "nothing is suspect, but read what it warned of" if warned else "nothing needs to be done"


def _dream(counts: Counts, command: Callable[[str, str], str | None]) -> tuple[Advice, ...]:
    if counts.runs.get("cycle") or counts.memories <= counts.suspects:
        return ()
    return (Advice(text=NEVER_DREAMT, command=command("cycle", "--dry-run")),)


def _amount(count: int, one: str, many: str) -> str:
    return f"no {many}" if count == 0 else f"{count:,} {one if count == 1 else many}"
