"""Command lines that can be copied into a shell, whatever an id holds.

An id may hold anything but NUL. What would act on a terminal while it is pasted, or be read in another order
than it is run, is written as bytes in ``$'...'``, which bash, zsh and ksh understand.
"""

from __future__ import annotations

import shlex
import unicodedata
from collections.abc import Sequence

_UNPRINTED = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def shell_word(text: str) -> str:
    """Return text as one word of a shell; "" for what no command line can hold."""
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        return ""
    if not any(unicodedata.category(letter) in _UNPRINTED for letter in text):
        return shlex.quote(text)
    return "$'" + "".join(map(_escaped, text)) + "'"


def argument(text: str) -> str:
    """Return an id as the last argument of a command; what begins with a hyphen is no option."""
    word = shell_word(text)
    return f"-- {word}" if text.startswith("-") else word


def place_of(words: Sequence[str]) -> str:
    """Return the arguments that say where a bank is, as they stand in a command line."""
    return " ".join(map(shell_word, words))


def command_line(verb: str, place: str, last: str = "") -> str:
    """Return a whole command.

    Args:
        verb: ``forget``, ``undo`` and so on.
        place: Of ``place_of``.
        last: Options or an ``argument``.
    """
    return " ".join(part for part in ("dream", verb, place, last) if part)


def _escaped(letter: str) -> str:
    if letter in "\\'":
        return "\\" + letter
    if unicodedata.category(letter) in _UNPRINTED:
        return "".join(f"\\x{byte:02x}" for byte in letter.encode())
    return letter
