"""DREAM memory for LlamaIndex: a postprocessor that lets forgotten memories drop out of the answer."""

from llamaindex_dream.messages import pages_from_messages
from llamaindex_dream.models import CoreEmbedding, as_chat
from llamaindex_dream.postprocessor import DreamPostprocessor

__all__ = ["CoreEmbedding", "DreamPostprocessor", "as_chat", "pages_from_messages"]
