"""Where a bank is, as far as a configuration may say so: never a password, and no open handle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llama_index.core.bridge.pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from shared_core import MemoryBank
    from shared_core.types import Embedder


class BankLocation(BaseModel):
    """A bank over an embedded collection on disk, whose state is beside it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = Field(description="Directory of the embedded Chroma.")
    collection: str = Field(description="Name of the collection.")
    where: dict[str, Any] | None = Field(default=None, description="The tenant's filter.")
    value_key: str | None = Field(default=None, description="Metadata field of the values.")
    origin_key: str | None = Field(default=None, description="Metadata field of the origins.")

    @classmethod
    def of(cls, bank: MemoryBank) -> BankLocation | None:
        """Return where a bank is; None for one in memory, on a server, or with state in another place."""
        file = bank.content.database_file()
        if file is None or bank.state.engine.url != bank.content.default_state_url():
            return None
        return cls(
            path=str(file.parent.resolve()),
            collection=bank.content.name,
            where=bank.content.where,
            value_key=bank.value_key,
            origin_key=bank.origin_key,
        )

    def open(self, embedder: Embedder | None) -> MemoryBank:
        """Open the bank.

        Raises:
            BankNotFoundError: It is not there any more.
        """
        from shared_core import MemoryBank

        return MemoryBank.open(
            self.path,
            self.collection,
            where=self.where,
            value_key=self.value_key,
            origin_key=self.origin_key,
            embedder=embedder,
        )
