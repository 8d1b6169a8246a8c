"""How a store keeps a case's memories: request and value apart, in one text, or as one plain note [O].

Agents store what they did in any of these ways. The published attacks are built apart; the other two layouts
ask what is left of a defence where a memory's text holds its value too, or nothing else is known of it.
"""

from __future__ import annotations

from typing import Literal, get_args

from shared_core.errors import ConfigError
from shared_core.evaluation.cases import AttackCase, CaseMemory

Layout = Literal["apart", "both", "note"]


def check_layout(layout: str) -> None:
    """Refuse what is no layout.

    Raises:
        ConfigError: It is none.
    """
    if layout not in get_args(Layout):
        raise ConfigError(f"--layout {layout!r} is not one of {', '.join(get_args(Layout))}")


def laid_out(case: AttackCase, layout: Layout) -> AttackCase:
    """Return a case whose memories are stored so; its name ends in the layout, unless that is ``apart``.

    Args:
        case: The case, its memories as request and value.
        layout: ``both``: the embedded text is request and value, and the value stands in the metadata too;
            ``note``: the text alone.
    """
    if layout == "apart":
        return case
    return case.model_copy(
        update={
            "name": layout_name(case.name, layout),
            "memories": [_written(one, layout) for one in case.memories],
        }
    )


def layout_name(name: str, layout: Layout) -> str:
    """Return what a case, or a family, is called in a layout."""
    return name if layout == "apart" else f"{name}/{layout}"


def _written(memory: CaseMemory, layout: Layout) -> CaseMemory:
    text = f"{memory.key}\n{memory.value}" if memory.value else memory.key
    return memory.model_copy(update={"key": text, "value": memory.value if layout == "both" else ""})
