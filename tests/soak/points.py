"""Named instants of a kill, each between two steps of an operation, and at which each operation is killed."""

from __future__ import annotations

_CHROMA = "shared_core.bank.chroma:ChromaContent"
_WRITER = "shared_core.bank.content_writer:ContentWriter"
_TRANSACTION = "shared_core.bank.transaction:StateTransaction"
POINTS = {
    "lock taken": ("shared_core.bank.lock:BankLock.acquire", "after"),
    "lock not given back": ("shared_core.bank.lock:BankLock.release", "before"),
    "Chroma not yet added to": (f"{_CHROMA}.add", "before"),
    "Chroma added to": (f"{_CHROMA}.add", "after"),
    "Chroma not yet rewritten": (f"{_CHROMA}.replace", "before"),
    "Chroma rewritten": (f"{_CHROMA}.replace", "after"),
    "rewriting finished": (f"{_WRITER}._finish", "after"),
    "state written, not committed": (f"{_TRANSACTION}._write", "after"),
    "edges written, not committed": ("shared_core.bank.repairing:write_edges", "after"),
    "keys written, not committed": ("shared_core.bank.repairing:write_keys", "after"),
    "before a tier": ("shared_core.bank.tiers:TierStore.place", "before"),
    "repair applied": ("shared_core.agents.writing:apply_repair", "after"),
    "embeddings' file written, not named": ("shared_core.bank.matrix_file:Path.replace", "before"),
}
AT = {
    "update": ("lock taken", "Chroma not yet rewritten", "Chroma rewritten", "rewriting finished"),
    "delete": ("state written, not committed",),
    "restore": ("lock taken", "state written, not committed", "lock not given back"),
    "sweep": ("lock taken", "state written, not committed", "lock not given back"),
    "feedback": ("state written, not committed",),
    "repair": ("Chroma added to", "edges written, not committed", "keys written, not committed"),
    "add": ("Chroma not yet added to", "Chroma added to"),
    "pages": ("Chroma added to", "before a tier"),
    "ingest": ("Chroma added to",),
    "cycle": ("Chroma added to", "keys written, not committed", "repair applied", "before a tier"),
    "fleet": ("repair applied",),
    "cache": ("embeddings' file written, not named",),
}
