"""Feedback from a response: its source nodes are the memories that helped, or did not.

Credit is shared by the scores that our own components gave, which they remember; a score on a node may come
from any later step of the pipeline, on any scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llama_index.core.schema import NodeWithScore

from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core import ConsolidationConfig, MemoryBank, Run
    from shared_core.retrieval.given_scores import GivenScores

_WRAPPERS = ("source_nodes", "raw_output", "tool_output", "sources", "tool_calls")
"""Attributes under which LlamaIndex's responses, tool outputs and agents' outputs keep source nodes."""


def record_feedback(
    bank: MemoryBank,
    response: Any,
    success: bool | float,
    config: ConsolidationConfig | None = None,
    *,
    given: GivenScores | None = None,
) -> Run:
    """Tell how a task went for which a query engine, chat engine, retriever or agent used memories.

    Args:
        bank: The bank that the nodes are of; nodes of other indexes are passed over.
        response: A response, streaming or not, the output of a tool or an agent, or nodes with scores.
        success: True or False, or how well it went in [0, 1].
        config: Momentum and temperature of the consolidation.
        given: What a postprocessor or retriever remembers of its scores; without it all share equally.

    Returns:
        The journal's run, which can be undone.

    Raises:
        ConfigError: No source node is of this bank, or bad success.
    """
    from shared_core.retrieval.given_scores import shared_credit

    nodes = source_nodes(response)
    held = set(bank.content.get(list({found.node.node_id for found in nodes})))
    found = {
        node.node.node_id: None if given is None else given.of_memory(node.node.node_id, node.score)
        for node in reversed(nodes)
        if node.node.node_id in held
    }
    ids, scores = shared_credit(dict(reversed(found.items())), "source nodes of this bank")
    return bank.feedback(ids, scores, success, config)


def source_nodes(response: Any) -> list[NodeWithScore]:
    """Return the source nodes of a response, of an agent's or a tool's output, or of a list of those.

    Raises:
        ConfigError: It is something else.
    """
    if isinstance(response, NodeWithScore):
        return [response]
    if isinstance(response, Sequence) and not isinstance(response, (str, bytes)):
        return [node for part in response for node in source_nodes(part)]
    fields = _fields(response)
    if not fields:
        raise ConfigError(
            f"feedback got a {type(response).__name__}: give a response with source nodes, the output "
            "of a tool or an agent, or nodes with scores"
        )
    for name in _WRAPPERS:
        if nodes := _within(fields.get(name)):
            return nodes
    return []


def _fields(response: Any) -> Mapping[str, Any]:
    # a response made of a pydantic object answers None for whatever it does not have
    found = {name: getattr(response, name, None) for name in _WRAPPERS}
    return {name: value for name, value in found.items() if value is not None}


def _within(found: Any) -> list[NodeWithScore]:
    """Return the nodes inside a wrapper; a tool's output may be anything, and then has none."""
    if found is None:
        return []
    if isinstance(found, Sequence) and not isinstance(found, (str, bytes)):
        return [node for part in found for node in _within(part)]
    try:
        return source_nodes(found)
    except ConfigError:
        return []
