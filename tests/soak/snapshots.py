"""Comparing what two looks at a bank found, see ``checks.snapshot``."""

from __future__ import annotations

from typing import Any

import numpy as np

ROUNDING = 1e-6


def users(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Return a snapshot without derived memories."""
    own = {
        name: {i: v for i, v in snapshot[name].items() if not i.startswith("dream-derived/")}
        for name in ("contents", "state", "tiers")
    }
    return {**snapshot, **own}


def differing(found: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """Return in what two snapshots differ; undone derived memories stay in the collection, unseen."""
    lines = []
    for name in ("contents", "state", "tiers"):
        # an undone repair's memories stay, without effect: ``checks.derived`` looks at those
        a, b = users(found)[name], users(wanted)[name]
        if keys := sorted(key for key in a.keys() | b.keys() if not _same(a.get(key), b.get(key))):
            lines.append(f"{len(keys)} {name}, such as {keys[0]}: {a.get(keys[0])}, not {b.get(keys[0])}")
    for name in ("edges", "keys"):
        if _users_own(found[name]) != _users_own(wanted[name]):
            lines += [f"{name}: {found[name]}, not {wanted[name]}"]
    return lines


def _users_own(rows: list[list[str]]) -> list[list[str]]:
    return [row for row in rows if not any(end.startswith("dream-derived/") for end in row)]


def _same(one: Any, other: Any) -> bool:
    if one == other or one is None or other is None or len(one) != 3:
        return bool(one == other)
    # Chroma divides by the norm and multiplies again whenever it writes: the last bit may change
    vectors = (np.frombuffer(bytes.fromhex(content[2]), np.float32) for content in (one, other))
    return bool(one[:2] == other[:2] and np.allclose(*vectors, rtol=ROUNDING, atol=ROUNDING))
