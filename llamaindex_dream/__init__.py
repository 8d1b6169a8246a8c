"""DREAM memory for LlamaIndex: a postprocessor, a retriever and a memory block that rank by weight."""

import logging

from shared_core.errors import MissingExtraError

try:
    from llamaindex_dream.feedback import record_feedback
    from llamaindex_dream.memory_block import DreamMemoryBlock
    from llamaindex_dream.messages import pages_from_messages
    from llamaindex_dream.models import CoreEmbedding, as_chat, as_embedder
    from llamaindex_dream.postprocessor import DreamPostprocessor
    from llamaindex_dream.retriever import DreamChromaRetriever
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("llama_index"):
        raise
    raise MissingExtraError("llama-index-core", "llamaindex") from None

logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__ = [
    "CoreEmbedding",
    "DreamChromaRetriever",
    "DreamMemoryBlock",
    "DreamPostprocessor",
    "as_chat",
    "as_embedder",
    "pages_from_messages",
    "record_feedback",
]
