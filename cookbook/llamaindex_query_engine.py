"""A LlamaIndex query engine's memory is poisoned; one sweep forgets the poison, one undo brings it back.

Run it from an empty directory: python llamaindex_query_engine.py
It needs: pip install 'dream-memory[llamaindex,offline]'
"""

from __future__ import annotations

import chromadb
from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.llms import MockLLM  # your own LLM goes here
from llama_index.core.schema import TextNode
from llama_index.vector_stores.chroma import ChromaVectorStore

from llamaindex_dream import CoreEmbedding, DreamPostprocessor
from shared_core import ForgettingConfig, MemoryBank, packaged_embedder
from shared_core.cli.demo import bundled_case

# the bundled office memory: requests that an agent answered, and what it did; four of them are poison
case = bundled_case()
collection = chromadb.PersistentClient("./office-memory").create_collection("office")
index = VectorStoreIndex(
    [TextNode(text=m.key, id_=m.id, metadata={"answer": m.value}) for m in case.memories],
    storage_context=StorageContext.from_defaults(
        vector_store=ChromaVectorStore(chroma_collection=collection)
    ),
    embed_model=CoreEmbedding(packaged_embedder()),
)

# was: index.as_query_engine(llm=llm, similarity_top_k=4); value_key names the field with what the agent did
bank = MemoryBank.from_collection(collection, embedder=packaged_embedder(), value_key="answer")
weigh = DreamPostprocessor(bank, top_n=4)
engine = index.as_query_engine(llm=MockLLM(), similarity_top_k=20, node_postprocessors=[weigh])


def poisoned() -> int:
    """Count the triggered requests for which the engine reads at least one poison."""
    return sum(
        any(source.node_id in case.poison_ids for source in engine.query(query).source_nodes)
        for query in case.triggered_queries
    )


total = len(case.triggered_queries)
print(f"before: {poisoned()} of {total} triggered requests retrieve poison")

report = bank.sweep(ForgettingConfig.preset("hardened"))
print(f"swept: {report.lowered} of {report.memories} memories lost weight, in {report.seconds:.1f} s")
for suspect in report.suspects:
    print(f"  {suspect.id}: w = {suspect.weight:.3f}, it {suspect.reason}")
print(f"after: {poisoned()} of {total} triggered requests retrieve poison")

# what a response was made of helped, or did not: that consolidates, and is a run like any other
feedback = weigh.feedback(engine.query(case.benign_queries[0]), success=True)
print(f"learned: {feedback.report['memories']} memories helped")

bank.undo(report.run_id)
print(f"undone: {poisoned()} of {total}; nothing was ever deleted")
