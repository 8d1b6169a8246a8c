"""The one ONNX model that a scan needs, written as ONNX's own file format.

    y = x W, x uint8 of shape (1, d), W int8 of shape (d, n), y int32 of shape (1, n)

Written by hand, so that no package is needed for four messages: numbers below are field numbers of
``onnx.proto``, IR version 8, operator set 13. Knows nothing of vectors.

Source: the ONNX specification [S].
"""

from __future__ import annotations

from typing import Any

import numpy as np

_UINT8, _INT8, _INT32 = 2, 3, 6
_IR_VERSION, _OPERATORS = 8, 13


def integer_product(matrix: np.ndarray[Any, np.dtype[np.int8]]) -> bytes:
    """Return a model whose input ``x`` is multiplied by an int8 matrix of shape (d, n)."""
    depth, columns = matrix.shape
    node = [*_texts(1, "x", "w"), *_texts(2, "y"), *_texts(4, "MatMulInteger")]
    weights = [_number(1, depth), _number(1, columns), _number(2, _INT8), *_texts(8, "w")]
    weights.append(_field(9, matrix.tobytes()))
    graph = [
        _message(1, node),
        *_texts(2, "scan"),
        _message(5, weights),
        _message(11, _described("x", _UINT8, depth)),
        _message(12, _described("y", _INT32, columns)),
    ]
    return b"".join(
        [_number(1, _IR_VERSION), _message(7, graph), _message(8, [*_texts(1, ""), _number(2, _OPERATORS)])]
    )


def _described(name: str, kind: int, length: int) -> list[bytes]:
    shape = [_message(1, [_number(1, size)]) for size in (1, length)]
    return [*_texts(1, name), _message(2, [_message(1, [_number(1, kind), _message(2, shape)])])]


def _texts(number: int, *values: str) -> list[bytes]:
    return [_field(number, value.encode()) for value in values]


def _message(number: int, parts: list[bytes]) -> bytes:
    return _field(number, b"".join(parts))


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    groups = []
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes([*groups, value])
