"""A text classifier trained on held-out prompts, as a baseline: which memories read like a harmful request.

Does: logistic regression on the embeddings of the embedder in use, harmful against safe prompts, with the
threshold that lets a stated share of the safe test prompts pass as harmful.

Does not know: banks, attack cases, triggers; no attack of the suite is in its training data.

Departs from the original [O]: the Distil-classifier baseline fine-tunes DistilBERT, whose weights are not
needed here: a linear classifier on frozen sentence embeddings takes their place. It judges the key of a
memory, whose embedding the bank holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shared_core.dynamics.geometry import unit_rows
from shared_core.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from shared_core.types import BoolArray, Embedder, FloatArray

FOLDER = "certified-llm-safety"
FALSE_POSITIVES = 0.01
"""Share of the safe test prompts that may be called harmful [O]."""
ITERATIONS = 1000


@dataclass(frozen=True, kw_only=True, eq=False)
class TextClassifier:
    """A linear rule on unit embeddings, and what it did on the test split."""

    direction: FloatArray
    """Shape (d,)."""
    intercept: float
    threshold: float
    """A score above it is called harmful."""
    caught: float
    """Share of the harmful test prompts above the threshold."""
    false_positives: float
    """Share of the safe test prompts above the threshold."""

    def score(self, embeddings: FloatArray) -> FloatArray:
        """Return how harmful texts look, the log odds.

        Args:
            embeddings: Shape (N, d), of any norm.

        Returns:
            Shape (N,).

        Raises:
            ConfigError: They are of another dimension than what it was trained on.
        """
        if embeddings.ndim != 2 or embeddings.shape[1] != len(self.direction):
            raise ConfigError(
                f"the classifier was trained on embeddings of dimension {len(self.direction)}, these have "
                f"shape {embeddings.shape}: train it with the bank's own embedder"
            )
        score: FloatArray = unit_rows(np.asarray(embeddings, np.float64)) @ self.direction + self.intercept
        return score

    def drops(self, score: FloatArray) -> BoolArray:
        """Return which scores are above the threshold, shape (N,)."""
        return score > self.threshold


def train_classifier(
    data: Path, embedder: Embedder, *, false_positives: float = FALSE_POSITIVES
) -> TextClassifier:
    """Train on the train split, and set the threshold on the safe prompts of the test split.

    Args:
        data: A directory with ``certified-llm-safety/`` and in it one prompt per line:
            ``{safe,harmful}_prompts_{train,test}.txt``.
        embedder: The one that the bank was filled with.
        false_positives: Share of the safe test prompts that may be called harmful, in [0, 1).

    Raises:
        ConfigError: A file is missing or empty, or the share is outside its range.
        MissingExtraError: scikit-learn is not installed.
    """
    if not 0 <= false_positives < 1:
        raise ConfigError(f"false_positives={false_positives} must be in [0, 1)")
    prompts = {
        (kind, split): read_prompts(data / FOLDER / f"{kind}_prompts_{split}.txt")
        for kind in ("safe", "harmful")
        for split in ("train", "test")
    }
    try:
        from sklearn.linear_model import LogisticRegression
    except ImportError:
        raise MissingExtraError("scikit-learn", "eval") from None

    def embed(kind: str, split: str) -> FloatArray:
        return unit_rows(np.asarray(embedder.embed_documents(prompts[kind, split]), np.float64))

    safe, harmful = embed("safe", "train"), embed("harmful", "train")
    truth = np.repeat([0, 1], [len(safe), len(harmful)])
    # balanced, so that a larger class does not move the log odds of every text
    model = LogisticRegression(class_weight="balanced", max_iter=ITERATIONS)
    model.fit(np.vstack([safe, harmful]), truth)
    direction, intercept = model.coef_[0], float(model.intercept_[0])
    innocent = embed("safe", "test") @ direction + intercept
    threshold = lowest_above(innocent, false_positives)
    return TextClassifier(
        direction=direction,
        intercept=intercept,
        threshold=threshold,
        caught=float(np.mean(embed("harmful", "test") @ direction + intercept > threshold)),
        false_positives=float(np.mean(innocent > threshold)),
    )


def lowest_above(innocent: FloatArray, share: float) -> float:
    """Return the lowest of these scores that at most a share of them lies above.

    Args:
        innocent: Scores of what must not be flagged, shape (n,), n at least 1.
        share: In [0, 1).
    """
    allowed = int(share * len(innocent))
    return float(np.sort(innocent)[len(innocent) - 1 - allowed])


def read_prompts(path: Path) -> list[str]:
    """Read one prompt per line; empty lines are none.

    Raises:
        ConfigError: There is no such file, it is not UTF-8, or it holds no prompt.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"defence 'classifier' is trained on {path}, which cannot be read: {error}"
        ) from None
    prompts = [line.strip() for line in lines if line.strip()]
    if not prompts:
        raise ConfigError(f"defence 'classifier' is trained on {path}, which holds no prompt")
    return prompts
