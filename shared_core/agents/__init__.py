"""What a dream does to a memory: the associations that it writes."""

from shared_core.agents.associating import AssociationReport, associate
from shared_core.agents.associations import bridge_edges, graded_weights, scene_keys, sentence_keys

__all__ = [
    "AssociationReport",
    "associate",
    "bridge_edges",
    "graded_weights",
    "scene_keys",
    "sentence_keys",
]
