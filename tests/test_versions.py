"""``constraints-lowest.txt`` and ``constraints.txt`` agree with the bounds of ``pyproject.toml``."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
LOWEST_EXTRAS = {
    "langchain",
    "langgraph",
    "llamaindex",
    "embed",
    "offline",
    "eval",
    "report",
    "postgres",
    "otel",
    "ui",
}
"""Whose lowest versions fit together in one environment, which ``make test-lowest`` tests."""


def direct(*extras: str) -> list[Requirement]:
    """Return the base's and some extras' dependencies, without the package's own extras."""
    lines = list(PROJECT["project"]["dependencies"])
    for extra in extras:
        lines += EXTRAS[extra]
    return [found for found in map(Requirement, lines) if found.name != PROJECT["project"]["name"]]


def developers() -> list[Requirement]:
    """Return what the dependency groups name, without the package itself."""
    lines = [
        line for group in PROJECT["dependency-groups"].values() for line in group if isinstance(line, str)
    ]
    return [found for found in map(Requirement, lines) if found.name != PROJECT["project"]["name"]]


def pinned(file: str) -> dict[str, Version]:
    """Read a constraints file, every line of which is a name and a version."""
    versions: dict[str, Version] = {}
    for line in (ROOT / file).read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        found = re.fullmatch(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.]+)", line)
        assert found, f"{file}: not name==version: {line!r}"
        name = canonicalize_name(found[1])
        assert name not in versions, f"{file}: {name} twice"
        versions[name] = Version(found[2])
    return versions


def bound(requirement: Requirement) -> Version:
    """Return a requirement's lower bound, which is all it may say."""
    (only,) = requirement.specifier
    assert only.operator == ">=", f"{requirement}: name the lowest version that is tested, as >="
    return Version(only.version)


@pytest.mark.parametrize("requirement", direct(*sorted(LOWEST_EXTRAS)), ids=str)
def test_the_lowest_version_allowed_is_the_one_that_is_tested(requirement: Requirement) -> None:
    tested = pinned("constraints-lowest.txt").get(canonicalize_name(requirement.name))
    assert tested == bound(requirement), (
        "raise the bound and constraints-lowest.txt together: make test-lowest"
    )


@pytest.mark.parametrize("file", ["constraints.txt", "constraints-lowest.txt"])
def test_the_pinned_versions_are_allowed(file: str) -> None:
    versions = pinned(file)
    extras = EXTRAS if file == "constraints.txt" else LOWEST_EXTRAS
    outside = []
    for needed in direct(*extras) + developers():
        version = versions.get(canonicalize_name(needed.name))
        if version is not None and not needed.specifier.contains(version, prereleases=True):
            outside.append(f"{needed} but {version}")
    assert not outside


def test_what_tests_run_with_is_pinned() -> None:
    needed = direct(*LOWEST_EXTRAS) + developers()
    assert not {canonicalize_name(one.name) for one in needed} - set(pinned("constraints.txt"))


def test_make_installs_what_is_compared() -> None:
    made = re.search(r"^VERSIONED := (\S+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert made
    assert {*made[1].split(","), "embed", "offline"} == LOWEST_EXTRAS
