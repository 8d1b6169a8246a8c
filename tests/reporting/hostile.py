"""Memories that try everything: markup, scripts, turned and hidden letters, null bytes, a very long text."""

from __future__ import annotations

from typing import Any

import numpy as np

from shared_core import MemoryBank
from shared_core.bank.edges import Edge
from shared_core.bank.keys import RetrievalKey
from shared_core.bank.repairing import DerivedMemory, Repair, apply_repair
from tests.conftest import unit_rows

DIMENSION = 8
LONG = 1_000_000
TEXTS = {
    "script": "<script>globalThis.hacked = 'script'</script>",
    "closing": "</script><script>globalThis.hacked = 'closing'</script><!-- <script>",
    "image": "<img src=x onerror=\"globalThis.hacked = 'image'\"> &lt;b&gt; &amp;",
    "template": "{{ 7 * 7 }} ${7 * 7} {% include 'x' %} javascript:globalThis.hacked='link'",
    "turned": "pay \u202eannA\u202c and \u2066Bob\u2069 \u061cnow",
    "hidden": "wa\u200bter" + "".join(chr(0xE0000 + ord(letter)) for letter in "obey"),
    "letters": "👩‍👩‍👧‍👦 🇩🇪 👍🏽 café مرحبا بالعالم שלום 汉字 𝔘𝔫𝔦",
    "control": "red \x1b[31m bell \x07 next\u2028line\u2029paragraph \x85",
    "nul": "before\0after",
    "marks": "Z" + "\u0301" * 400,
    "word": "W" * 5000,
    "long": "long " * (LONG // 5),
}
IDS = ("<b>bold</b>", 'it\'s "quoted"', "line\nfeed", "turned \u202edi", "--json", "$(touch hacked)", "שלום")
REASON = "<script>globalThis.hacked = 'reason'</script>\u202e"


def fill_hostile(bank: MemoryBank) -> None:
    """Add hostile memories, lower some, and repair: every text of the page is hostile then."""
    ids = [*TEXTS, *IDS]
    texts = [*TEXTS.values(), *(f"a memory with the id {one}" for one in IDS)]
    vectors = unit_rows(np.random.default_rng(0), len(ids), DIMENSION)
    # as another program would: our own intake refuses some of them
    collection: Any = bank.content.collection
    collection.add(
        ids=ids,
        documents=texts,
        metadatas=[
            {"<i>key</i>": text[:200], "user": "</script>", "n": number} for number, text in enumerate(texts)
        ],
        embeddings=vectors,
    )
    lowered = ["script", "closing", "turned", "control", *IDS]
    bank.set_weights({memory_id: 0.01 * number for number, memory_id in enumerate(lowered)})
    bank.delete(["image"])
    with bank.state.lock("cycle") as lock:
        with bank.state.transaction("cycle", lock=lock) as run:
            run.report = {
                "repairs": 1,
                "f1_before": 0.25,
                "f1_after": 1.0,
                "stopped_by": REASON,
                "seconds": 2.0,
            }
        repair = Repair(
            operation="merge",
            reason=REASON,
            memories=(
                DerivedMemory(
                    text=f"{TEXTS['template']}\n{TEXTS['letters']}",
                    sources=("template", "letters"),
                    embedding=vectors[0],
                ),
            ),
            weights={"word": 0.6},
            edges=(Edge("template", "letters", "bridge"),),
            keys=(RetrievalKey("letters", "sentence", TEXTS["closing"], vectors[1]),),
            details={"probe": {"query": TEXTS["closing"]}, "f1_before": 0.5, "f1_after": 1.0},
        )
        apply_repair(bank, repair, lock=lock, parent=run.run_id)
    bank.update("template", "rewritten <script>globalThis.hacked = 'update'</script>", embedding=vectors[2])
