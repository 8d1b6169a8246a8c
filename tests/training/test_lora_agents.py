"""Agents on one backbone: asked together, checked like any model, and the rules where they fail."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

pytest.importorskip("peft", reason="the extra train is not installed")

from shared_core import MemoryBank
from shared_core.agents import DreamConfig, DreamCycle
from shared_core.agents.asking import BUDGET, CONTEXT, Asker, AskingLimits, Task
from shared_core.agents.llm_agents import llm_agents
from shared_core.agents.parsing import JSON, DiagnosisReply, known
from shared_core.agents.prompts import ShownPage, quotes_prompt
from shared_core.bank.conversation import ConversationMemory
from shared_core.chat import BatchChatModel, ChatMessage, ChatReply, MeteredChat
from shared_core.embedding import SentenceTransformerEmbedder
from shared_core.errors import ChatContextError, ChatError
from shared_core.training.backbone import Backbone
from shared_core.training.lora_agents import AdapterChat, lora_agents
from tests.agents.nut_story import pages
from tests.agents.scripted import ScriptedChat
from tests.cli.test_cli import dream, dream_json
from tests.training.tiny import tiny_model

ROOT = Path(__file__).resolve().parents[2]
QUICK = DreamConfig(rounds=1, partitions=1, probes=12, groundwork=False)
GOOD = json.dumps({"cause": "noisy", "pages": ["p1"]})


class Together(ScriptedChat):
    """Answers prompts at once, from a list of batches."""

    def __init__(self, *batches: Sequence[str | Exception]) -> None:
        super().__init__("unused")
        self.batches = list(batches)
        self.sizes: list[int] = []

    def complete_all(self, messages: Sequence[Sequence[ChatMessage]], **options: object) -> list[object]:
        self.sizes.append(len(messages))
        self.asked += [list(one) for one in messages]
        batch = self.batches.pop(0)
        return [one if isinstance(one, Exception) else ChatReply(text=one) for one in batch]


def task(number: int) -> Task[list[str]]:
    prompt = quotes_prompt([ShownPage(f"id-{number}", f"page {number}")], {}, all_facts=False)
    return Task(
        agent="analyst",
        prompt=prompt,
        form=DiagnosisReply,
        check=lambda reply: known(reply.pages, prompt.pages),
    )


@pytest.fixture
def bank(tmp_path: Path, embedder: SentenceTransformerEmbedder) -> MemoryBank:
    bank = MemoryBank.open(tmp_path / "chroma", "talks", embedder=embedder, create=True)
    ConversationMemory(bank).add_pages(pages())
    return bank


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


def test_many_are_asked_at_once_and_only_the_unusable_again() -> None:
    chat = Together([GOOD, "no json", "none", GOOD], [GOOD, "still none"])
    asker = Asker(chat)
    assert asker.ask_all([task(at) for at in range(4)]) == [["id-0"], ["id-1"], None, ["id-3"]]
    assert chat.sizes == [4, 2]
    assert "This reply cannot be used" in chat.asked[4][-1].content
    report = asker.report
    assert (report.asked, report.answered, report.retried, report.calls) == (4, 3, 2, 6)
    assert report.fallbacks["analyst"] == {JSON: 1}
    assert asker.ask_all([]) == []


def test_an_error_in_place_of_one_reply_is_that_ones() -> None:
    asker = Asker(Together([GOOD, ChatContextError("too long"), GOOD]))
    assert asker.ask_all([task(at) for at in range(3)]) == [["id-0"], None, ["id-2"]]
    assert asker.report.fallbacks["analyst"] == {CONTEXT: 1}


def test_what_the_budget_has_no_room_for_is_not_asked() -> None:
    chat = Together([GOOD, GOOD])
    asker = Asker(chat, AskingLimits(calls=2))
    assert asker.ask_all([task(at) for at in range(5)]) == [["id-0"], ["id-1"], None, None, None]
    assert chat.sizes == [2]
    assert asker.report.fallbacks["analyst"] == {BUDGET: 3}


def test_a_batch_of_another_length_is_a_failure() -> None:
    asker = Asker(Together([GOOD]))
    assert asker.ask_all([task(0), task(1)]) == [None, None]


def test_a_model_that_answers_singly_has_no_batches() -> None:
    assert not isinstance(ScriptedChat(GOOD), BatchChatModel)
    with pytest.raises(ChatError, match="complete_all"):
        MeteredChat(ScriptedChat(GOOD)).complete_all([task(0).prompt.messages])
    assert Asker(ScriptedChat(GOOD)).ask_all([task(0), task(1)]) == [["id-0"], ["id-1"]]


def test_adapters_are_chat_models_that_count(folder: Path) -> None:
    chat = AdapterChat(Backbone.load(str(folder)), "analyst")
    assert isinstance(chat, BatchChatModel)
    reply = chat.complete(task(0).prompt.messages, max_tokens=7)
    assert reply.completion_tokens is not None
    assert reply.completion_tokens <= 7
    assert reply.prompt_tokens == len(chat.backbone.encode(task(0).prompt.messages))


def test_a_prompt_that_does_not_fit_is_said_and_leaves_the_others_alone(tmp_path: Path) -> None:
    chat = AdapterChat(Backbone.load(str(tiny_model(tmp_path / "small", context=600))), "dreamer")
    short, long = [ChatMessage("user", "hi")], [ChatMessage("user", "hello " * 500)]
    fits, not_fits = chat.complete_all([short, long], max_tokens=5)
    assert isinstance(fits, ChatReply)
    assert isinstance(not_fits, ChatContextError)
    with pytest.raises(ChatContextError):
        chat.complete(long, max_tokens=5)


def test_where_adapters_write_nonsense_the_dream_is_the_rules(bank: MemoryBank, folder: Path) -> None:
    agents = lora_agents(Backbone.load(str(folder)), AskingLimits(reply_tokens=8, seconds=None))
    report = DreamCycle.with_agents(bank, agents, config=QUICK).run(dry_run=True)
    rules = DreamCycle(bank, config=QUICK).run(dry_run=True)
    assert report.rounds[0].probes == rules.rounds[0].probes > 0
    assert report.f1_after == rules.f1_after
    told = report.agents
    assert told["answered"] == 0
    assert told["asked"] == sum(sum(counts.values()) for counts in told["fallbacks"].values()) > 0
    assert told["calls"] == 2 * told["asked"]


def test_every_dream_has_a_budget_of_its_own(bank: MemoryBank) -> None:
    chat = ScriptedChat("no json")
    agents = llm_agents(chat, AskingLimits(calls=3))
    cycle = DreamCycle.with_agents(bank, agents, config=QUICK)
    first, second = (cycle.run(dry_run=True).agents for _ in range(2))
    assert first["calls"] == second["calls"] == 3
    assert len(chat.asked) == 6
    broken = ScriptedChat(ChatError("down"))
    cycle = DreamCycle.with_agents(bank, llm_agents(broken, AskingLimits(failures=1)), config=QUICK)
    for _ in range(2):
        cycle.run(dry_run=True)
    assert len(broken.asked) == 2


def test_the_command_dreams_with_adapters(bank: MemoryBank, folder: Path, tmp_path: Path) -> None:
    Backbone.load(str(folder)).save(tmp_path / "adapters")
    place = (tmp_path / "chroma", "--collection", "talks")
    quick = ("--dry-run", "--rounds", "1", "--probes", "6", "--no-groundwork", "--calls", "4")
    lora = ("--agents", "lora", "--model", folder, "--adapters", tmp_path / "adapters")
    told = dream_json("cycle", *place, *quick, *lora)
    assert told["agents"]["asked"] > 0
    assert told["dry_run"] is True
    for options, said in (
        (("--agents", "lora", "--model", folder), "--adapters DIR"),
        (("--agents", "llm", "--adapters", tmp_path), "--agents lora too"),
        (("--agents", "lora", "--model", folder, "--adapters", tmp_path / "chroma"), "dream train sft"),
    ):
        refused = dream("cycle", *place, *options)
        assert refused.returncode == 2
        assert said in " ".join(refused.stderr.split())


def test_the_documented_lines_run(bank: MemoryBank, folder: Path, tmp_path: Path) -> None:
    Backbone.load(str(folder)).save(tmp_path / "joint")
    text = (ROOT / "docs" / "lora.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    code = code.replace('"smollm2"', repr(str(folder))).replace("runs/joint", str(tmp_path / "joint"))
    code = code.replace("lora_agents(backbone)", "lora_agents(backbone, AskingLimits(calls=2, seconds=None))")
    names: dict[str, object] = {"bank": bank, "AskingLimits": AskingLimits}
    exec(code, names)
    assert names["report"].agents["asked"] > 0  # type: ignore[attr-defined]
