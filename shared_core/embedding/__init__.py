"""Embedders that run on this machine, offline: sentence-transformers, static word vectors, quantised E5.

One of the few packages that may load torch; it does so when an embedder is made, not on import.
"""

from shared_core.embedding.e5 import E5Embedder
from shared_core.embedding.local import LocalEmbedder
from shared_core.embedding.sentence import SentenceTransformerEmbedder, bge_embedder, packaged_embedder
from shared_core.embedding.wordllama import WordLlamaEmbedder

__all__ = [
    "E5Embedder",
    "LocalEmbedder",
    "SentenceTransformerEmbedder",
    "WordLlamaEmbedder",
    "bge_embedder",
    "packaged_embedder",
]
