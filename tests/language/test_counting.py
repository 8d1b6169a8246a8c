"""One is told as one."""

from __future__ import annotations

import pytest

from shared_core.language.counting import counted


@pytest.mark.parametrize(
    ("count", "name", "told"),
    [
        (1, "key", "1 key"),
        (2, "key", "2 keys"),
        (0, "memory", "0 memories"),
        (1, "derived memory", "1 derived memory"),
        (1234, "memory", "1,234 memories"),
    ],
)
def test_names_are_in_the_plural_but_for_one(count: int, name: str, told: str) -> None:
    assert counted(count, name) == told
