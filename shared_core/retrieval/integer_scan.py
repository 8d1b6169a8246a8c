"""Cosines of many vectors from 8-bit copies of them, each with a bound on its error.

A scan is as fast as memory is read, so a copy of a quarter of the size is scanned four times as fast; from
the bounds a caller knows which few vectors must be compared in full. For v' = s W and q' = t X, rounded:

    |q.v - q'.v'| <= ||q - q'|| ||v'|| + ||q|| ||v - v'||

Rows are rounded to W in [-127, 127] and queries to X in [-63, 63]: two products then fit the 16 bits in which
processors without VNNI add them. Products are summed as integers by ONNX Runtime, which Chroma brings along.

Knows neither ids nor weights. Source: none, ours [O].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shared_core.retrieval.onnx_format import integer_product
from shared_core.types import FloatArray

BLOCK = 32_768
"""Rows that one call of ONNX Runtime compares."""
_ROW_STEPS = 127
_QUERY_STEPS = 63
_QUERY_ZERO = 64
ROUNDING = 1e-5
"""More than single precision can add to any error here, for unit vectors of up to some thousand numbers."""


class IntegerRows:
    """8-bit copies of unit vectors; never changed, so safe for threads."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    def extended(self, matrix: FloatArray) -> IntegerRows:
        """Return these and further unit vectors, float32, shape (n, d)."""
        longer = IntegerRows()
        more = [_Block(matrix[start : start + BLOCK]) for start in range(0, len(matrix), BLOCK)]
        longer._blocks = [*self._blocks, *more]
        longer._rows = self._rows + len(matrix)
        return longer

    def cosines(self, query: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return cosines and how far each may be off, both of shape (len(self),), float32.

        Args:
            query: A unit vector, or zero, shape (d,).
        """
        step = float(np.abs(query).max()) / _QUERY_STEPS or 1.0
        whole = np.rint(query / step)
        off = float(np.linalg.norm(query - whole * step))
        shifted = (whole + _QUERY_ZERO).astype(np.uint8)[None]
        found = [block.compared(shifted, np.float32(step), np.float32(off)) for block in self._blocks]
        if len(found) == 1:
            return found[0]
        return np.concatenate([near for near, _ in found]), np.concatenate([error for _, error in found])


class _Block:
    def __init__(self, matrix: FloatArray) -> None:
        peak = np.abs(matrix).max(axis=1)
        # a row of zeros is exact at any step
        self._step = np.where(peak > 0, peak / _ROW_STEPS, 1.0).astype(np.float32)
        whole = np.rint(matrix / self._step[:, None])
        self._off = np.linalg.norm(matrix - whole * self._step[:, None], axis=1) + np.float32(ROUNDING)
        self._norm = np.float32(1.0) + self._off
        integers = np.ascontiguousarray(whole.T, np.int8)
        self._shift = integers.sum(axis=0, dtype=np.int32) * np.int32(_QUERY_ZERO)
        # not before a bank is large enough to need it: it takes a while to import
        import onnxruntime

        options = onnxruntime.SessionOptions()
        # callers bring their own threads
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session: Any = onnxruntime.InferenceSession(
            integer_product(integers), options, providers=["CPUExecutionProvider"]
        )

    def compared(
        self, shifted: np.ndarray[Any, Any], step: np.float32, off: np.float32
    ) -> tuple[FloatArray, FloatArray]:
        product = self._session.run(None, {"x": shifted})[0][0]
        near: FloatArray = np.subtract(product, self._shift).astype(np.float32)
        near *= self._step
        near *= step
        error: FloatArray = self._norm * off
        error += self._off
        return near, error
