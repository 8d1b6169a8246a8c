"""Every code block of the documentation runs, or, where it needs data or hours, is at least a valid command.

Fences say what is done with a block: ``python`` blocks of a page run in order, in one scope, in a folder of
their own; ``bash`` blocks run or are parsed; ``text``, ``json`` and ``toml`` show something and are left be.
Nothing else is allowed, indented blocks above all, because nobody would notice when they go stale.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomllib
import typer
from langchain_core.language_models.fake_chat_models import FakeListChatModel

from shared_core import ForgettingConfig, MemoryBank, SentenceTransformerEmbedder, errors
from shared_core.cli.main import app, main

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "CONTRIBUTING.md"])
FENCE = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
NOT_RUN = re.compile(r"<!-- not run: [^>]+ -->\n```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHOWN = {"text", "json", "toml"}
LONG = {"demo", "eval", "fleet", "train", "ui"}
"""Commands that need data, models, servers or minutes: their words are parsed only."""
OTHERS = {"chroma", "export", "jupyter", "python", "sqlite3"}


def fences(page: Path) -> list[tuple[str, str]]:
    return FENCE.findall(page.read_text(encoding="utf-8"))


def having(language: str) -> list[Any]:
    return [pytest.param(page, id=page.name) for page in PAGES if language in dict(fences(page))]


def lines(code: str) -> Iterator[list[str]]:
    for line in code.replace("\\\n", " ").splitlines():
        if words := shlex.split(line, comments=True):
            yield words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_fences_say_what_they_hold(page: Path) -> None:
    for language, code in fences(page):
        assert language in {"python", "bash"} | SHOWN, f"{page.name}: ```{language} before {code[:60]!r}"
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    indented = re.findall(r"(?<=\n\n)    (?![*\-:]|\d+\.)\S.*", prose)
    assert indented == [], f"{page.name}: fence these blocks"


@pytest.mark.parametrize("page", having("python"))
def test_python_runs(
    page: Path, own_folder: Path, embedder: SentenceTransformerEmbedder, caplog: pytest.LogCaptureFixture
) -> None:
    left_out = NOT_RUN.findall(page.read_text(encoding="utf-8"))
    scope: dict[str, Any] = {"__name__": page.stem, "embedder": embedder}
    prepared(own_folder, embedder)
    with MemoryBank.open("./chroma", "memories", embedder=embedder, value_key="answer") as bank:
        # what a page speaks of and does not make itself; most make their own
        scope |= {"bank": bank, "model": FakeListChatModel(responses=["no JSON"])}
        for number, (language, code) in enumerate(fences(page), 1):
            if language == "python":
                runnable = imports_of(code) if code in left_out else code
                exec(compile(runnable, f"{page.name}, block {number}", "exec"), scope)
    # what observers and background threads raise is only logged
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize("page", [*having("bash"), pytest.param(ROOT / "README.md", id="README.md")])
def test_commands_are_right(
    page: Path,
    own_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    embedder: SentenceTransformerEmbedder,
    capsys: pytest.CaptureFixture[str],
) -> None:
    prepared(own_folder, embedder)
    for code in [code for language, code in fences(page) if language == "bash"]:
        for words in map(meant, lines(code)):
            if words[0] == "export":
                monkeypatch.setenv(*words[1].split("=", 1))
            elif words[0] == "pip":
                check_extras(words)
            elif words[0] == "make":
                assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), words
            elif words[0] != "dream":
                assert words[0] in OTHERS, f"{page.name}: what runs {shlex.join(words)}?"
            elif words[1] in LONG or {"lora", "llm"} & set(words):
                parse(words[1:])
            else:
                run(page, words, capsys)


def imports_of(code: str) -> str:
    """Keep what can be checked of a block that needs what is not here: its grammar, and its imports."""
    kept = [node for node in ast.parse(code).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    return "\n".join(map(ast.unparse, kept))


def prepared(folder: Path, embedder: SentenceTransformerEmbedder) -> None:
    """Make what the pages' commands work on: collections of ``./chroma``, each with a sweep to undo."""
    texts = [f"Where is the {word} of floor {n}?" for n, word in enumerate(["lamp", "desk", "map"] * 4)]
    values = [f"in room {n}" for n in range(len(texts))]
    ids = [f"m{n}" for n in range(len(texts))]
    options: Any = {"create": True, "embedder": embedder, "value_key": "answer"}
    for name in ("memories", "talks", "notes"):
        with MemoryBank.open(folder / "chroma", name, **options) as bank:
            bank.add(texts, ids=ids, values=values)
            bank.sweep(ForgettingConfig())


def meant(words: list[str]) -> list[str]:
    """Put in what a reader would: the newest run of that collection, a memory of the bank."""
    known = {"MEMORY_ID": "m1"}
    if "RUN_ID" in words:
        name = words[words.index("--collection") + 1] if "--collection" in words else "memories"
        with MemoryBank.open("./chroma", name) as bank:
            known["RUN_ID"] = next(run.run_id for run in bank.runs() if run.status == "applied")
    return [known.get(word, word) for word in words]


def check_extras(words: list[str]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for word in words:
        for named in re.findall(r"dream-memory\[([\w,]+)\]", word):
            assert set(named.split(",")) <= extras.keys(), word


def parse(words: list[str]) -> None:
    """Let typer read a command's words, and run nothing; files that it should read need not exist."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("dream", list(words))
    while hasattr(command, "commands"):
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert command is not None, words
        context = command.make_context(name, rest, parent=context)


def run(page: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words[1:])
    printed = capsys.readouterr()
    assert not ended.value.code, f"{page.name}: {shlex.join(words)}: {printed.err}"
    if "--json" in words:
        json.loads(printed.out)


def test_links_lead_somewhere() -> None:
    for page in [*PAGES, ROOT / "README.md"]:
        prose = FENCE.sub("", page.read_text(encoding="utf-8"))
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", prose):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_troubleshooting_quotes_real_messages() -> None:
    """A heading with an ellipsis, or in quotes, is a message: its pieces stand in the code, in this order."""
    said = " \n".join(messages())
    for heading in re.findall(
        r"^### (.*….*)$", (ROOT / "docs" / "troubleshooting.md").read_text(), re.MULTILINE
    ):
        pieces = [piece.strip(" :,;()") for piece in heading.split("…")]
        for piece in filter(None, pieces):
            assert piece in said, heading


def test_troubleshooting_knows_every_error() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    family = [
        name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)
    ]
    missing = [name for name in family if name not in page]
    assert missing == []


def messages() -> Iterator[str]:
    """Every string that the packages hold, with … for what is filled in."""
    for package in ("shared_core", "langchain_dream", "llamaindex_dream"):
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    yield "".join(
                        part.value if isinstance(part, ast.Constant) else "…" for part in node.values
                    )
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


def test_papers_name_modules_that_exist() -> None:
    for name in re.findall(r"`((?:shared_core|tests)/[^`]+)`", (ROOT / "docs" / "papers.md").read_text()):
        assert (ROOT / name).exists(), name


def test_configuration_lists_every_config() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    for file in (ROOT / "shared_core").rglob("*.py"):
        if "evaluation" in file.parts or "training" in file.parts:
            continue  # options of measurements and of training stand with their commands
        for name in re.findall(r"^class (\w+Config)\b", file.read_text(encoding="utf-8"), re.MULTILINE):
            assert name in page, name
