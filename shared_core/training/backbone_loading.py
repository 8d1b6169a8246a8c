"""Loads the language model and tokenizer that adapters are put on, from a folder or a package."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shared_core.chat.packaged import packaged_model
from shared_core.errors import ConfigError, MissingExtraError

PACKAGED = "smollm2"
EXTRA = "train"


def torch_module() -> Any:
    """Return torch.

    Raises:
        MissingExtraError: The extra ``train`` is not installed.
    """
    return needed("torch")


def needed(name: str) -> Any:
    """Return a module of the extra ``train``.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingExtraError(name, EXTRA) from None


def load_model(name: str, quantize: str = "none") -> Any:
    """Return a causal language model of transformers: float32 on a CPU, bfloat16 or 8 bits on CUDA.

    Args:
        name: ``smollm2``, a folder, or a name that transformers knows.
        quantize: ``none`` or ``8bit``.

    Raises:
        ConfigError: It cannot be loaded, or not in 8 bits here.
        MissingExtraError: An extra is not installed.
    """
    torch, transformers = torch_module(), needed("transformers")
    needed("peft")
    cuda = torch.cuda.is_available()
    if quantize not in {"none", "8bit"}:
        raise ConfigError(f"quantize={quantize!r} is neither none nor 8bit")
    if quantize == "8bit":
        return _in_8_bits(name, cuda, transformers)
    if name == PACKAGED:
        return _dequantised(packaged_model(), torch, transformers).to("cuda" if cuda else "cpu")
    with _told(name), _quiet(transformers):
        dtype = torch.bfloat16 if cuda else torch.float32
        model = transformers.AutoModelForCausalLM.from_pretrained(name, dtype=dtype)
        return model.to("cuda" if cuda else "cpu")


def load_tokenizer(name: str) -> Any:
    """Return the tokenizer of a model; one without a chat template cannot be used.

    Raises:
        ConfigError: It cannot be loaded, or has no chat template.
    """
    transformers = needed("transformers")
    with _told(name), _quiet(transformers):
        if name == PACKAGED:
            file = packaged_model()
            needed("gguf")
            tokenizer = transformers.AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
        else:
            tokenizer = transformers.AutoTokenizer.from_pretrained(name)
    if tokenizer.chat_template is None:
        raise ConfigError(f"the tokenizer of {name} has no chat template: take an instruct model")
    tokenizer.padding_side = "left"
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


# ---- inner


def _in_8_bits(name: str, cuda: bool, transformers: Any) -> Any:
    if not cuda:
        raise ConfigError("8-bit loading needs a CUDA device, and there is none: leave quantize out")
    if name == PACKAGED:
        raise ConfigError("smollm2 is small enough: 8 bits are for a model of your own")
    try:
        importlib.import_module("bitsandbytes")
    except ImportError:
        raise MissingExtraError("bitsandbytes", "int8") from None
    with _told(name), _quiet(transformers):
        config = transformers.BitsAndBytesConfig(load_in_8bit=True)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            name, quantization_config=config, device_map="auto"
        )
    return needed("peft").prepare_model_for_kbit_training(model)


def _dequantised(file: Path, torch: Any, transformers: Any) -> Any:
    """Return the packaged model as an ordinary one of float32, which can be trained and saved."""
    needed("gguf")
    with _told(PACKAGED), _quiet(transformers):
        read = transformers.AutoModelForCausalLM.from_pretrained(
            str(file.parent), gguf_file=file.name, dtype=torch.float32
        )
    config = read.config
    # else transformers takes it for a quantised model, which it neither trains nor saves
    del config.quantization_config
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(read.state_dict())
    model.generation_config = read.generation_config
    return model


@contextmanager
def _told(name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ConfigError(f"cannot load the model {name!r}: {error}") from error


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Keep the progress bars of loading off the terminal."""
    was = transformers.utils.logging.is_progress_bar_enabled()
    transformers.utils.logging.disable_progress_bar()
    level = transformers.utils.logging.get_verbosity()
    transformers.utils.logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers.utils.logging.set_verbosity(level)
        if was:
            transformers.utils.logging.enable_progress_bar()
