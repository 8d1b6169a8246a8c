"""LoCoMo: conversations over many sessions, and whether a memory finds the turns that answer."""

from shared_core.evaluation.locomo.arms import (
    PLAIN_ARMS,
    Arm,
    Bm25Arm,
    ContextEntry,
    DenseArm,
    HybridArm,
    plain_arm,
)
from shared_core.evaluation.locomo.loader import (
    CATEGORIES,
    Conversation,
    Question,
    Turn,
    load_locomo,
    parse_conversation,
    parse_evidence,
)
from shared_core.evaluation.locomo.metrics import (
    answer_recall,
    bleu1,
    evidence_recall,
    fitting,
    memoryos_f1,
    official_f1,
    rouge_l,
    set_f1,
)
from shared_core.evaluation.locomo.reader import ChatReader
from shared_core.evaluation.locomo.scoring import QuestionScore, quoted_turns, score_arm, summary_rows

__all__ = [
    "CATEGORIES",
    "PLAIN_ARMS",
    "Arm",
    "Bm25Arm",
    "ChatReader",
    "ContextEntry",
    "Conversation",
    "DenseArm",
    "HybridArm",
    "Question",
    "QuestionScore",
    "Turn",
    "answer_recall",
    "bleu1",
    "evidence_recall",
    "fitting",
    "load_locomo",
    "memoryos_f1",
    "official_f1",
    "parse_conversation",
    "parse_evidence",
    "plain_arm",
    "quoted_turns",
    "rouge_l",
    "score_arm",
    "set_f1",
    "summary_rows",
]
