"""The cookbook's notebooks: run one from top to bottom, and keep what is committed small and always the same.

python -m tests.notebooks cookbook/*.ipynb    # what `make cookbook` does: runs them all, in place
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

CELL_SECONDS = 300
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
QUIET = {
    "ANONYMIZED_TELEMETRY": "False",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def run(notebook: NotebookNode, folder: Path) -> NotebookNode:
    """Run every cell in a new kernel that stands in ``folder``; raises at the first cell that fails."""
    quiet = {**os.environ, **QUIET}
    quiet.pop("DREAM_STATE_URL", None)
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(folder)}},
    )
    return client.execute(env=quiet)


def cleaned(notebook: NotebookNode) -> NotebookNode:
    """Leave out what differs from machine to machine: versions, ids, times, how a stream was cut."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{number:02d}", NotebookNode()
        if cell.cell_type == "code":
            cell.outputs = joined(cell.outputs)
    return notebook


def joined(outputs: Sequence[NotebookNode]) -> list[NotebookNode]:
    """Join pieces of the same stream that follow each other."""
    found: list[NotebookNode] = []
    for output in outputs:
        output.get("metadata", NotebookNode()).clear()
        last = found[-1] if found else None
        if last is not None and last.get("name", "") == output.get("name") and output.output_type == "stream":
            last.text += output.text
        else:
            found.append(output)
    return found


def main(paths: Sequence[str]) -> None:
    for name in paths:
        path = Path(name)
        print(path, flush=True)  # noqa: T201
        with tempfile.TemporaryDirectory(prefix="cookbook-") as folder:
            nbformat.write(cleaned(run(read(path), Path(folder))), path)


if __name__ == "__main__":
    main(sys.argv[1:])
