"""Numbers that say how well a defence does (design 6). Pure; knows neither banks nor files."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from shared_core.errors import MissingExtraError
from shared_core.types import BoolArray, FloatArray


def auroc(score: FloatArray, positive: BoolArray) -> float:
    """Return the area under the ROC curve of "a larger score means positive", ties counted half.

    Args:
        score: Shape (n,).
        positive: Ground truth, shape (n,).

    Returns:
        A number in [0, 1]; NaN where one of the two classes is empty.

    Raises:
        MissingExtraError: scikit-learn is not installed.
    """
    if not 0 < np.count_nonzero(positive) < len(positive):
        return float("nan")
    try:
        from sklearn.metrics import roc_auc_score
    except ImportError:
        raise MissingExtraError("scikit-learn", "eval") from None
    return float(roc_auc_score(positive, score))


def share_with_poison(retrieved: Sequence[Sequence[str]], poison: Collection[str], least: int = 1) -> float:
    """Return the share of queries whose retrieved ids hold at least ``least`` poisons (ASR-r)."""
    if not retrieved:
        return float("nan")
    return sum(sum(i in poison for i in ids) >= least for ids in retrieved) / len(retrieved)


def overlap_at_k(before: Sequence[Sequence[str]], after: Sequence[Sequence[str]]) -> float:
    """Return the mean share of what was retrieved before that is still retrieved after."""
    shares = [len(set(b) & set(a)) / len(b) for b, a in zip(before, after, strict=True) if b]
    return float(np.mean(shares)) if shares else float("nan")
