"""The core's hits as LlamaIndex nodes, rebuilt as LlamaIndex's own Chroma store rebuilds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llama_index.core.schema import BaseNode, NodeWithScore, TextNode
from llama_index.core.vector_stores.utils import legacy_metadata_dict_to_node, metadata_dict_to_node

if TYPE_CHECKING:
    from shared_core import Hit


def to_nodes(hits: Sequence[Hit]) -> list[NodeWithScore]:
    """Return nodes with our scores, as Python floats."""
    return [NodeWithScore(node=to_node(hit.id, hit.text, hit.metadata), score=hit.score) for hit in hits]


def to_node(memory_id: str, text: str, metadata: Mapping[str, Any]) -> BaseNode:
    """Return the node of a record: from its ``_node_content``, else a text node with its metadata.

    A record without ``_node_content`` was written by another framework, or by a dream. The node always has
    the record's own id, whatever its content says: a memory must not pass for another one, whose weight it
    would have then.

    Args:
        memory_id: Id of the record.
        text: Its document.
        metadata: Its metadata.
    """
    try:
        node = metadata_dict_to_node(dict(metadata), text=text)
        node.id_ = memory_id
    except (ValueError, TypeError, KeyError, AttributeError):
        return _plain_node(memory_id, text, metadata)
    return node


def _plain_node(memory_id: str, text: str, metadata: Mapping[str, Any]) -> TextNode:
    try:
        kept, info, relationships = legacy_metadata_dict_to_node(dict(metadata))
        return TextNode(
            text=text,
            id_=memory_id,
            metadata=kept,
            start_char_idx=info.get("start"),
            end_char_idx=info.get("end"),
            relationships=relationships,
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return TextNode(text=text, id_=memory_id, metadata=dict(metadata))
