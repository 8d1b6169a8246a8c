"""Values that nobody should give, and a record of whether a bank has changed."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

import numpy as np
from hypothesis import strategies as st

from shared_core import MemoryBank

STRINGS = [
    "", " ", "\0", "a\0b", "\ud800", "a\udfff", "x" * 10_240, "../../x", "/etc/passwd", "..\\..\\x", "a/b",
    "'; drop table memories; --", "\" OR 1=1 --", "%s%n", "{0}", "${HOME}", "$where", "#doc",
    "chroma:document", "dream:derived", "\u202eevil", "\x1b[2J", "é", "e\u0301", "😀", "nan", "NULL", "m0",
    "m1", "0", "-1", "\n",
]  # fmt: skip
NUMBERS = [
    0, 1, -1, 2, 10**6, 2**31, 2**63, -(2**63) - 1, 10**400, 0.0, -0.0, 0.5, 1.0, 1.5, -0.5, 1e-320, 1e308,
    1e-30, math.nan, math.inf, -math.inf, True, False, np.float32(0.5), np.float64("nan"), np.int64(1),
    np.bool_(True), 1j,
]  # fmt: skip
ODD = [
    None, b"bytes", bytearray(b"x"), [], {}, (), set(), [[]], [None], ["m0"], ["m0", "m0"], [["m0"]], [{}],
    {"m0": 0.5}, {"m0": None}, {1: 2}, {"$and": []}, {"$or": [{}]}, {"a": {"$gt": "x"}}, {"user": "ada"},
    {"a": {"b": {"c": 1}}}, {"$contains": 5}, {"$not_there": "x"}, object(), object, len, range(3),
    datetime.min, np.nan, np.array([]), np.array(1.0),
    np.zeros((2, 2)), np.array(["a"]), np.array([None], object), [1, [2]], [1.0, math.nan], slice(1),
    Exception("x"),
]  # fmt: skip

strings = st.one_of(st.sampled_from(STRINGS), st.text(max_size=20))
numbers = st.one_of(st.sampled_from(NUMBERS), st.floats(), st.integers())
odd = st.sampled_from(ODD)
anything = st.one_of(strings, numbers, odd, st.lists(st.one_of(strings, numbers, odd), max_size=3))
"""What is given for any argument whatever."""

NESTED: Any = {"k": 1}
for _ in range(2_000):
    NESTED = {"k": NESTED}
HUGE_METADATA = {f"key {i}": "v" * 10 for i in range(5_000)}
metadatas = st.one_of(
    st.sampled_from([NESTED, HUGE_METADATA, {"k": [NESTED]}, {"": 1}, {"k": ["a", 1]}, {"k": b"x"}]),
    st.dictionaries(strings, st.one_of(strings, numbers, odd), max_size=3),
    odd,
)


def vectors(dimension: int) -> st.SearchStrategy[Any]:
    """Return embeddings of one memory, few of which anybody could store."""
    number = st.one_of(
        st.sampled_from([0.0, 1.0, -1.0, 1e-320, 1e-30, 1e30, 1e308, math.nan, math.inf]), st.floats()
    )
    right = st.lists(number, min_size=dimension, max_size=dimension)
    return st.one_of(right, st.lists(number, max_size=dimension + 2), right.map(np.array), anything)


def snapshot(bank: MemoryBank) -> tuple[Any, ...]:
    """Return all that a refused call must leave as it was."""
    ids = bank.content.ids()
    columns = bank.state.columns()
    stored = bank.content.get_embeddings(ids)
    return (
        [(record.id, record.text, dict(record.metadata)) for record in bank.content.page(0, 100_000)],
        {i: stored[i].tobytes() for i in ids},
        [(run.run_id, run.kind, run.status, run.version) for run in bank.runs()],
        bank.state.version(),
        {
            name: columns.gather(ids, name).tolist()
            for name in ("weight", "suspicion", "consolidation", "deleted")
        },
    )
