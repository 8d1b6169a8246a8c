"""What a framework's user may give to our retriever and postprocessor: taken, or refused in our words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_chroma import Chroma
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from langchain_dream import DreamRetriever
from llamaindex_dream import DreamPostprocessor
from shared_core import MemoryBank
from shared_core.errors import DreamError
from tests.soak.effort import LetterEmbedder, effort
from tests.soak.hostile import anything, odd, snapshot, strings


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryBank]:
    with MemoryBank.open(
        tmp_path_factory.mktemp("frameworks"), "bad", embedder=LetterEmbedder(), create=True
    ) as opened:
        opened.add(["a red boat", "a blue heron", "plums"], ids=["m0", "m1", "m2"])
        yield opened


def store_of(bank: MemoryBank, folder: Path) -> Chroma:
    return Chroma("bad", LetterEmbedder(), persist_directory=str(folder))  # type: ignore[arg-type]


OPTIONS = st.dictionaries(
    st.sampled_from(["k", "fetch_k", "min_weight", "lambda_mult", "score_threshold", "filter", "where", "x"]),
    anything,
    max_size=2,
)


@effort(60)
@given(query=st.one_of(strings, anything), options=OPTIONS)
def test_a_langchain_retriever(bank: MemoryBank, query: Any, options: dict[str, Any]) -> None:
    folder = Path(str(bank.state.engine.url.database)).parent
    retriever = DreamRetriever.from_vectorstore(store_of(bank, folder))
    before = snapshot(bank)
    with suppress(DreamError):
        retriever.invoke(query, **options)
    assert snapshot(bank) == before


nodes = st.lists(
    st.builds(
        lambda i, text, score: NodeWithScore(node=TextNode(id_=i, text=text), score=score),
        st.one_of(st.sampled_from(["m0", "m1", "m2"]), st.text(max_size=5)),
        st.text(max_size=10),
        st.one_of(st.none(), st.floats()),
    ),
    max_size=4,
)


@effort(60)
@given(found=nodes, query=st.one_of(st.none(), strings))
def test_a_llamaindex_postprocessor(bank: MemoryBank, found: list[NodeWithScore], query: str | None) -> None:
    before = snapshot(bank)
    processor = DreamPostprocessor(bank=bank)
    with suppress(DreamError):
        kept = processor.postprocess_nodes(found, None if query is None else QueryBundle(query))
        assert {node.node.node_id for node in kept} <= {node.node.node_id for node in found}
    assert snapshot(bank) == before


@effort(60)
@given(name=st.sampled_from(sorted(DreamPostprocessor.model_fields)), value=st.one_of(anything, odd))
def test_options_of_a_postprocessor(bank: MemoryBank, name: str, value: Any) -> None:
    with suppress(DreamError):
        DreamPostprocessor(bank=bank, **{name: value})
