"""Whether Chroma's own index of an embedded collection was written to its end.

Chroma writes the files of its HNSW index over the old ones, about every thousand additions. A process that is
killed while it does so leaves them cut off: the next one's first question fails, later ones are answered from
embeddings of which some are wrong (chroma#7678). Texts and metadata are in SQLite, and whole.
"""

from __future__ import annotations

import struct
from pathlib import Path

from shared_core.types import Check

_HEADER = struct.Struct("<i6Q")
"""Of hnswlib: its version, and offset, room for, number and size of the elements, and two further offsets."""
_VERSION = 1
_NAME = "index"


def index_check(folder: Path, segment: str) -> Check:
    """Compare the sizes of an index's files with the number of elements that its header tells.

    Args:
        folder: Chroma's directory.
        segment: Id of the collection's vector segment, which names a directory in it.
    """
    place = folder / segment
    try:
        header = (place / "header.bin").read_bytes()
        version, _, _, elements, size, *_ = _HEADER.unpack_from(header)
        sizes = {name: (place / name).stat().st_size for name in ("length.bin", "data_level0.bin")}
        links, names = (place / "link_lists.bin").read_bytes(), place / "index_metadata.pickle"
        # its last byte says that it ends; nothing of it is decoded
        is_ended = not names.exists() or _last_byte(names) == b"."
    except FileNotFoundError:
        return Check(name=_NAME, status="ok", found="Chroma has written none yet")
    except (OSError, struct.error) as error:
        return _torn(f"its files cannot be read: {error}")
    if version != _VERSION:
        return Check(name=_NAME, status="skip", found=f"Chroma's index has format {version}, not known here")
    for name, least in (("length.bin", 4 * elements), ("data_level0.bin", size * elements)):
        if sizes[name] < least:
            return _torn(f"{name} has {sizes[name]} bytes, and {elements} embeddings need {least}")
    if not is_ended or not _is_long_enough(links, elements):
        return _torn(f"{'link_lists.bin' if is_ended else names.name} ends too early")
    return Check(name=_NAME, status="ok", found=f"Chroma's index holds {elements} embeddings, and is whole")


def _last_byte(file: Path) -> bytes:
    with file.open("rb") as read:
        read.seek(max(0, file.stat().st_size - 1))
        return read.read(1)


def _is_long_enough(links: bytes, elements: int) -> bool:
    """Tell whether a list of links stands there for every element: its length, 4 bytes, and so many bytes."""
    at = 0
    for _ in range(elements):
        if at + 4 > len(links):
            return False
        at += 4 + int.from_bytes(links[at : at + 4], "little")
    return at <= len(links)


def _torn(reason: str) -> Check:
    return Check(
        name=_NAME,
        status="fail",
        found=f"Chroma's index was cut off while it was written, as by a killed process: {reason}. Texts and "
        "metadata are whole; some embeddings may be wrong",
        todo="restore the directory from a backup, or add all texts to a new collection: it embeds them anew",
    )
