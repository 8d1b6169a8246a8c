"""The core's hits as LangChain documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from langchain_core.documents import Document

if TYPE_CHECKING:
    from shared_core import Hit


def to_documents(hits: Sequence[Hit], prefix: str) -> list[Document]:
    """Return documents with our numbers in their metadata, under the prefix; the user's own keys win."""
    return [
        Document(
            id=hit.id,
            page_content=hit.text,
            metadata={
                f"{prefix}score": hit.score,
                f"{prefix}similarity": hit.similarity,
                f"{prefix}weight": hit.weight,
                **hit.metadata,
            },
        )
        for hit in hits
    ]
