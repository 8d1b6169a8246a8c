"""A LangGraph chat dreams between its turns: no turn waits, and a later one finds what belongs together.

Run it from an empty directory: python langgraph_between_turns.py
It needs: pip install 'dream-memory[langgraph,offline]'
"""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph

from langchain_dream import DreamNode
from shared_core import AssociativeRetriever, MemoryBank, packaged_embedder
from shared_core.scheduling import SchedulerConfig, TriggerConfig

# where Ada lives is told on Monday and what she likes on Friday; no message says both
TALKS = {
    "monday": [
        "The stable roof leaks when the wind is from the west.",
        "My sister Ada Lindqvist moved to Lisbon last spring and rents a flat above a bakery there.",
        "A cello came in with a split in its belly.",
        "I glue such cracks with warm hide glue.",
    ],
    "wednesday": [
        "Our tomcat Pablo has learnt to open the fridge.",
        "He stole a whole trout yesterday.",
        "The half marathon is on the fourth of December in Utrecht.",
        "My left knee hurts after eight kilometres.",
    ],
    "friday": [
        "Noor wishes for a book about whales as a present.",
        "Ada Lindqvist drinks nothing but jasmine tea, so I always look for a tin of it.",
        "Ruben gets a head torch for dark mornings.",
        "For the neighbour I bottle our plum brandy.",
    ],
}
QUESTION = "Which present would please my sister in Lisbon?"


def answer(_state: MessagesState) -> dict[str, Any]:
    """Stand in for a chat model."""
    return {"messages": [AIMessage("I see.")]}


bank = MemoryBank.open("./talks", "talks", create=True, embedder=packaged_embedder())
dream = DreamNode(
    bank,
    triggers=TriggerConfig(new_pages=12),  # exchanges; the default is 20
    config=SchedulerConfig(kind="cycle"),
    exchanges=True,
    ticket_key="ticket",
)


class State(MessagesState):
    """The chat's state, with a field for the dream's ticket."""

    ticket: dict[str, Any]


builder = StateGraph(State)
builder.add_node("model", answer)
builder.add_node("dream", dream)
builder.add_edge(START, "model")
builder.add_edge("model", "dream")
builder.add_edge("dream", END)
graph = builder.compile(checkpointer=InMemorySaver())


def say(thread: str, text: str) -> dict[str, Any]:
    """Take one turn; returns its ticket."""
    config: Any = {"configurable": {"thread_id": thread}}
    return dict(graph.invoke({"messages": [("user", text)]}, config)["ticket"])


retriever = AssociativeRetriever(bank)


def show(when: str) -> None:
    """Print at which places a search finds where Ada lives, and what she likes."""
    found = [hit.text for hit in retriever.search(QUESTION, k=12)]
    places = [next(at for at, text in enumerate(found, 1) if word in text) for word in ("Lisbon", "jasmine")]
    print(f"{when}: Lisbon at place {places[0]}, jasmine tea at place {places[1]} of {len(found)}")


turns = [(thread, text) for thread, talk in TALKS.items() for text in talk]
for thread, text in turns[:-1]:
    ticket = say(thread, text)
dream.scheduler.flush(60)
show("before")
ticket = say(*turns[-1])
print(f"turn {len(turns)}: dream {ticket['state']}, because of {ticket['reason']}")
dream.scheduler.flush(300)  # a chat would go on; here we wait to see the difference
show("after")
report = dream.scheduler.status().history[0]["report"]["cycle"]
print(f"dreamt: {len(report['repairs'])} repairs in {report['seconds']:.1f} s")
bank.undo(report["run_id"])
show("undone")
dream.scheduler.close()
