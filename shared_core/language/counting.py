"""Numbers and the names of what they count, as messages say them."""

from __future__ import annotations


def counted(count: int, name: str) -> str:
    """Return "1 key", "2 keys", "1,000 memories".

    Args:
        count: How many.
        name: Of one of them; a regular noun, whatever stands before it.
    """
    if count == 1:
        return f"1 {name}"
    if name.endswith("y") and name[-2:-1] not in set("aeiou"):
        return f"{count:,} {name[:-1]}ies"
    return f"{count:,} {name}s"
