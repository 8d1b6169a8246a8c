"""Ranking of memories: weighted top-K, fusion, diversity, keywords and reranking (design section 2)."""

from shared_core.retrieval.bm25 import Bm25Index
from shared_core.retrieval.fusion import fuse_weighted, reciprocal_rank_fusion, unseen_bound
from shared_core.retrieval.mmr import mmr
from shared_core.retrieval.rerank import CrossEncoderReranker, apply_reranker
from shared_core.retrieval.retriever import SEARCH_OPTIONS, BankRetriever
from shared_core.retrieval.topk import Candidates, top_k, weighted_scores, widening_top_k

__all__ = [
    "SEARCH_OPTIONS",
    "BankRetriever",
    "Bm25Index",
    "Candidates",
    "CrossEncoderReranker",
    "apply_reranker",
    "fuse_weighted",
    "mmr",
    "reciprocal_rank_fusion",
    "top_k",
    "unseen_bound",
    "weighted_scores",
    "widening_top_k",
]
