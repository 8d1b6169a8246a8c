"""Weighted reciprocal rank fusion of a dense and a word ranking, over the whole of both, by arrays.

With ranks r from 1 among the memories that count:

    fused(m) = a_dense / (k + r_dense(m)) + a_word / (k + r_word(m)),  score(m) = w(m) * fused(m)

where the second summand is 0 for what shares no word with the query. Only memories near the top of an arm are
scored, but with their exact ranks in both; one outside the first D of either arm has at most
w_max (a_dense + a_word) / (k + D + 1), so D grows until that is no more than the K-th best score.

Source: reciprocal rank fusion after Cormack et al. 2009 [S]; the weights and the stop rule are ours [O].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shared_core.retrieval.topk import Candidates, top_k, weighted_scores

if TYPE_CHECKING:
    from shared_core.config import RetrievalConfig
    from shared_core.retrieval.vectors import Scan
    from shared_core.retrieval.word_ranks import WordRanks
    from shared_core.types import Array, FloatArray

FIRST_DEPTH = 80
"""Enough for four memories that one arm alone ranks first, with k = 60 and full weights."""
WIDER = 4


@dataclass(frozen=True, eq=False)
class RankFusion:
    """Both rankings of one query.

    Args:
        scan: Cosines of all memories.
        words: The word ranking, by the scan's rows; each that has a place counts in the scan.
        config: Constant and weights of the fusion, smallest weight and threshold.
    """

    scan: Scan
    words: WordRanks
    config: RetrievalConfig

    def best(self, weights_of: Callable[[Sequence[str]], FloatArray], k: int) -> Candidates:
        """Return the ``k`` best weighted memories, ties by similarity.

        Args:
            weights_of: Weights in [0, 1] of some ids, shape (m,).
            k: How many at most.
        """
        order = np.sort(self.scan.counted)
        depth, rounds = max(FIRST_DEPTH, WIDER * k), 0
        while True:
            rows = np.union1d(self.scan.best(depth), self.words.best(depth))
            rank = self._dense_rank(rows, order)
            by_rank = np.argsort(rank, kind="stable")
            rows, rank = rows[by_rank], rank[by_rank]
            found = self._ranked(rows, rank, self.words.rank(rows), weights_of, k, rounds := rounds + 1)
            if depth >= len(order) or (len(found.keys) == k and found.score[-1] >= self._unseen(depth)):
                return found
            depth *= WIDER

    def _ranked(
        self,
        rows: Array,
        dense_rank: Array,
        word_rank: Array,
        weights_of: Callable[[Sequence[str]], FloatArray],
        k: int,
        rounds: int,
    ) -> Candidates:
        dense_arm, word_arm = self.config.rrf_weights
        fused = dense_arm / (self.config.rrf_k + dense_rank)
        fused += np.where(word_rank > 0, word_arm / (self.config.rrf_k + np.maximum(word_rank, 1)), 0.0)
        ranked = np.flatnonzero(fused > 0)
        rows, fused = rows[ranked], fused[ranked]
        keys = [self.scan.ids[row] for row in rows.tolist()]
        weight = weights_of(keys)
        cosine = self.scan.similarity[rows].astype(float)
        if self.config.score_threshold is not None:
            weight = np.where(weighted_scores(cosine, weight) >= self.config.score_threshold, weight, 0.0)
        at = top_k(fused, weight, k, min_weight=self.config.min_weight)
        score = weighted_scores(fused[at], weight[at])
        return Candidates([keys[row] for row in at], cosine[at], weight[at], score, len(rows), rounds)

    def _dense_rank(self, rows: Array, ascending: FloatArray) -> Array:
        """Return the rank of some rows among all that count, from 1; equals by row."""
        own = self.scan.similarity[rows]
        below = np.searchsorted(ascending, own, side="left")
        upto = np.searchsorted(ascending, own, side="right")
        rank: Array = len(ascending) - upto + 1
        for at in np.flatnonzero(upto - below > 1):
            equal = self.scan.counted == own[at]
            every = np.flatnonzero(equal) if self.scan.rows is None else self.scan.rows[equal]
            rank[at] += np.searchsorted(every, rows[at])
        return rank

    def _unseen(self, depth: int) -> float:
        return sum(self.config.rrf_weights) / (self.config.rrf_k + depth + 1)
