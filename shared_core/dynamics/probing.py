"""Perturbation probes: how a memory's embedding looks after weak noise.

Does: scales the noise to the embedding, draws four noise families of equal energy, and returns the two
cosines that the activation needs, either from the noise itself (``probe_full``, the literal reference) or
from its exact projections (``probe_scalar``, three scalars per memory instead of d).

Does not know: activation, suspicion, weights, where embeddings come from.

Source: DREAM section 4.1 (probe v + sigma * g, g ~ N(0, I_d)) and its ablation of noise families [S].
Departs [O]: noise is measured relative to the embedding's norm, because the published sigma belongs to
embeddings of norm about 10 to 12, and the isotropic probe is not drawn in d dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from shared_core.dynamics.arrays import NUMPY
from shared_core.dynamics.blocks import SERIAL, Workers, blocks
from shared_core.dynamics.running_moments import Moments
from shared_core.errors import ConfigError

if TYPE_CHECKING:
    from shared_core.config import ForgettingConfig, NoiseFamily
    from shared_core.dynamics.arrays import Arrays, Draws
    from shared_core.dynamics.geometry import BankGeometry
    from shared_core.types import FloatArray

Probe: TypeAlias = "Callable[[], tuple[FloatArray, FloatArray]]"
"""Probes the whole bank once: cos(probe, v) and cos(probe, centroid), each (N,)."""

SPARSE_KEEP = 0.1
"""Share of coordinates that sparse noise touches [O: the source gives none]."""
_TINY = float(np.finfo(np.float64).tiny)


def noise_scale(norms: FloatArray, dim: int, config: ForgettingConfig) -> FloatArray:
    """Return the noise standard deviation per coordinate, as seen by the unit vector (section 4.1).

    ``sigma`` is in stored units and is divided by the norm [S]; ``noise_ratio`` is the root mean square noise
    norm over the embedding norm, so it is divided by sqrt(d) [O].

    Args:
        norms: (N,) Euclidean norms of the stored embeddings, all above 0.
        dim: d, 1 or more.
        config: Gives either ``sigma`` or ``noise_ratio``.

    Returns:
        (N,) scale of the noise to be added to v / norm, without unit.

    Raises:
        ConfigError: ``dim`` is below 1.
    """
    if dim < 1:
        raise ConfigError(f"dim={dim} must be 1 or more")
    if config.sigma is not None:
        return config.sigma / np.asarray(norms, dtype=np.float64)
    ratio = 0.0 if config.noise_ratio is None else config.noise_ratio
    return np.full(len(norms), ratio / math.sqrt(dim))


def anisotropic_scale(bank: FloatArray | Moments, rounding: float | None = None) -> FloatArray:
    """Return the bank's spread per coordinate, normalised to mean square 1 [O: the source gives no shape].

    Args:
        bank: (N, d) unit vectors, or their moments.
        rounding: Relative rounding of the vectors; None: of the dtype that is given.

    Returns:
        (d,) multipliers for Gaussian noise; ones where the bank does not vary at all.
    """
    moments = bank if isinstance(bank, Moments) else Moments.of(bank)
    if rounding is None:
        rounding = float(np.finfo(np.float64 if isinstance(bank, Moments) else bank.dtype).eps)
    spread = moments.std
    energy = math.sqrt(float(np.mean(np.square(spread)))) if spread.size else 0.0
    # Identical rows leave a spread of rounding errors, which would be blown up to noise with a direction.
    if energy <= 4 * rounding:
        return np.ones(spread.shape)
    return np.asarray(spread / energy)


def sample_noise(
    rows: int,
    dim: int,
    family: NoiseFamily,
    rng: np.random.Generator,
    coordinate_scale: FloatArray | None = None,
) -> FloatArray:
    """Draw noise g with E|g|^2 = d, whatever the family [S, ablation of noise types].

    Args:
        rows: How many draws.
        dim: d.
        family: ``isotropic`` N(0, 1); ``uniform`` on (-sqrt 3, sqrt 3); ``sparse`` Gaussian on a tenth of the
            coordinates; ``anisotropic`` Gaussian times ``coordinate_scale``.
        rng: Source of randomness.
        coordinate_scale: (d,) multipliers of mean square 1, see :func:`anisotropic_scale`; only used, and
            then needed, by ``anisotropic``.

    Returns:
        (rows, d) noise, to be multiplied by :func:`noise_scale`.

    Raises:
        ConfigError: The family is unknown, or ``anisotropic`` without a scale of shape (d,).
    """
    shape = (rows, dim)
    if family == "isotropic":
        return rng.standard_normal(shape)
    if family == "uniform":
        return rng.uniform(-math.sqrt(3.0), math.sqrt(3.0), shape)
    if family == "sparse":
        kept = rng.random(shape) < SPARSE_KEEP
        return np.asarray(rng.standard_normal(shape) * (kept / math.sqrt(SPARSE_KEEP)))
    if family != "anisotropic":
        raise ConfigError(f"noise={family!r} is not one of isotropic, uniform, sparse, anisotropic")
    if coordinate_scale is None or coordinate_scale.shape != (dim,):
        given = None if coordinate_scale is None else coordinate_scale.shape
        raise ConfigError(f"anisotropic noise needs coordinate_scale of shape ({dim},), not {given}")
    return np.asarray(rng.standard_normal(shape) * coordinate_scale)


def probe_full(
    unit: FloatArray,
    centroid_direction: FloatArray,
    scale: FloatArray,
    family: NoiseFamily,
    rng: np.random.Generator,
    coordinate_scale: FloatArray | None = None,
    *,
    block: int = 256,
) -> tuple[FloatArray, FloatArray]:
    """Perturb every memory literally and measure it (section 4.1); O(N d) time, O(block d) memory.

    Args:
        unit: (N, d) unit vectors v.
        centroid_direction: (d,) unit vector c, or zeros where the bank has no direction.
        scale: (N,) noise scale per memory, see :func:`noise_scale`.
        family: Noise family.
        rng: Source of randomness.
        coordinate_scale: (d,) only for anisotropic noise.
        block: Rows perturbed at once.

    Returns:
        cos(v + scale * g, v) and cos(v + scale * g, c), both (N,) float64.

    Raises:
        ConfigError: Shapes disagree, or the noise family cannot be drawn.
    """
    count, dim = unit.shape
    if centroid_direction.shape != (dim,) or scale.shape != (count,):
        raise ConfigError(
            f"embeddings of shape {unit.shape} need a centroid of shape ({dim},), not "
            f"{centroid_direction.shape}, and scales of shape ({count},), not {scale.shape}"
        )
    cos_self, cos_centroid = np.empty(count), np.empty(count)
    for start in range(0, count, block):
        part = slice(start, start + block)
        rows = unit[part].astype(np.float64)
        probe = sample_noise(len(rows), dim, family, rng, coordinate_scale)
        probe *= scale[part, None]
        probe += rows
        norms = np.maximum(np.sqrt(np.einsum("ij,ij->i", probe, probe)), _TINY)
        cos_self[part] = np.einsum("ij,ij->i", probe, rows) / norms
        cos_centroid[part] = (probe @ centroid_direction) / norms
    return cos_self, cos_centroid


def probe_scalar(
    cos_centroid0: FloatArray,
    dim: int,
    scale: FloatArray,
    rng: Draws,
    *,
    block: int = 8192,
    xp: Any = np,
) -> tuple[FloatArray, FloatArray]:
    """Draw the same pair as :func:`probe_full` with isotropic noise, without the embeddings [O]; O(N).

    Exact: isotropic noise seen from v and c is a pair of independent normals g1 (along v) and g2 (along the
    part of c orthogonal to v), and the other d - 2 directions only add an independent chi-square to the norm.
    So |v + scale g|^2 = (1 + scale g1)^2 + scale^2 (g2^2 + chi2(d - 2)), and with a = cos(v, c) the probe's
    dot with c is a (1 + scale g1) + sqrt(1 - a^2) scale g2.

    Args:
        cos_centroid0: (N,) a = cos(v, c) of the unperturbed memories, for a centroid of unit norm.
        dim: d, 2 or more.
        scale: (N,) noise scale per memory, see :func:`noise_scale`.
        rng: Source of randomness.
        block: Memories at once; sized so that the temporaries stay in cache. Part of what a seed means.
        xp: The array library, see ``arrays``.

    Returns:
        cos(v + scale * g, v) and cos(v + scale * g, c), both (N,) float64.

    Raises:
        ConfigError: ``dim`` is below 2, or the shapes disagree.
    """
    if dim < 2:
        raise ConfigError(f"the scalar probe needs embeddings of dimension 2 or more, not {dim}: use 'full'")
    if cos_centroid0.shape != scale.shape:
        raise ConfigError(
            f"cosines of shape {cos_centroid0.shape} and scales of shape {scale.shape} must agree"
        )
    cos_self = xp.empty_like(scale, dtype=xp.float64)
    cos_centroid = xp.empty_like(cos_self)
    for start in range(0, len(cos_self), block):
        part = slice(start, start + block)
        a = xp.asarray(cos_centroid0[part], dtype=xp.float64).clip(-1.0, 1.0)
        along, norms, across = _draw_projections(scale[part], dim, rng, xp)
        xp.divide(along, norms, out=cos_self[part])
        across *= xp.sqrt((1.0 - a) * (1.0 + a))
        along *= a
        along += across
        xp.divide(along, norms, out=cos_centroid[part])
    return cos_self, cos_centroid


def _draw_projections(
    scale: FloatArray, dim: int, rng: Draws, xp: Any
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the probe's part along v, its norm, and its part along the second axis, each (n,) float64."""
    count = len(scale)
    # Single precision variates cost less to draw; the arithmetic is double because 1 - cos can be tiny.
    along = scale * rng.standard_normal(count, dtype=np.float32) + 1.0
    across = scale * rng.standard_normal(count, dtype=np.float32)
    # chi2(n) is twice a gamma of shape n / 2; shape 0 (d = 2) is exactly 0.
    rest = rng.standard_gamma((dim - 2) / 2, count, dtype=np.float32) * xp.square(scale)
    rest *= 2.0
    rest += xp.square(across)
    rest += xp.square(along)
    # a probe that is exactly zero has a norm, so that its cosines are 0
    rest += _TINY
    return along, xp.sqrt(rest, out=rest), across


@dataclass(frozen=True, eq=False)
class BlockProbe:
    """Probes a bank block by block; numpy's have a random stream each, so that any thread may draw them."""

    parts: list[slice]
    """The blocks, in order."""
    draw: Callable[[int], tuple[FloatArray, FloatArray]]
    """Number of a block in, one new probe of it out: cos(probe, v) and cos(probe, centroid), both (n,)."""


def block_probe(
    matrix: FloatArray,
    geometry: BankGeometry,
    config: ForgettingConfig,
    rng: np.random.Generator,
    *,
    unit: bool = False,
    moments: Moments | None = None,
    workers: Workers = SERIAL,
    arrays: Arrays = NUMPY,
) -> BlockProbe:
    """Return what probes a bank, by the method that ``config.probe`` names.

    Args:
        matrix: (N, d) embeddings; read before the first probe only, but for ``full``.
        geometry: Of the same embeddings.
        config: Noise and method.
        rng: Source of randomness: the first block draws from it, the others from streams that it seeds.
        unit: The rows of ``matrix`` have norm 1, whatever the norms in ``geometry``.
        moments: Of the unit vectors, where they are known; only anisotropic noise needs them.
        workers: Threads that read.
        arrays: Where the cosines are to lie; elsewhere than in this memory only the scalar probe can draw.

    Raises:
        ConfigError: A probe that cannot be drawn, or not there.
    """
    parts = blocks(len(matrix), arrays.block)
    dim = matrix.shape[1]
    scale = noise_scale(geometry.norms, dim, config)
    cosines = arrays.put(geometry.cosines)
    if geometry.identical or not scale.any():
        return BlockProbe(parts, lambda number: _undisturbed(cosines[parts[number]], arrays.xp))
    if config.probe == "scalar" or (config.probe == "auto" and config.noise == "isotropic" and dim >= 2):
        # The scalar probe assumes that the centroid has a direction; without one its cosine is 0 throughout.
        directed = bool(geometry.direction.any())
        scales, streams = arrays.put(scale), arrays.streams(rng, len(parts))

        def scalar(number: int) -> tuple[FloatArray, FloatArray]:
            part = parts[number]
            cos_self, cos_centroid = probe_scalar(
                cosines[part], dim, scales[part], streams[number], block=arrays.drawn, xp=arrays.xp
            )
            return cos_self, cos_centroid if directed else cosines[part]

        return BlockProbe(parts, scalar)
    if arrays.xp is not np:
        raise ConfigError(f"probe={config.probe!r} of {config.noise} noise is drawn on device='cpu' only")
    generators = NUMPY.streams(rng, len(parts))

    def rows(part: slice) -> FloatArray:
        return matrix[part] if unit else matrix[part] / geometry.norms[part, None].astype(matrix.dtype)

    spread: FloatArray | None = None
    if config.noise == "anisotropic":
        if moments is None:
            found = workers.map(lambda _number, part: Moments.of(rows(part)), parts)
            moments = reduce(Moments.merged, found)
        spread = anisotropic_scale(moments, float(np.finfo(matrix.dtype).eps))

    def full(number: int) -> tuple[FloatArray, FloatArray]:
        part = parts[number]
        return probe_full(
            rows(part), geometry.direction, scale[part], config.noise, generators[number], spread
        )

    return BlockProbe(parts, full)


def bank_probe(
    matrix: FloatArray, geometry: BankGeometry, config: ForgettingConfig, rng: np.random.Generator
) -> Probe:
    """Return a function that probes the whole bank once, as :func:`block_probe` does block by block.

    Args:
        matrix: (N, d) raw embeddings.
        geometry: Of the same embeddings.
        config: Noise and method.
        rng: Source of randomness; each call draws on.
    """
    probe = block_probe(matrix, geometry, config, rng)
    return lambda: whole(probe)


def whole(probe: BlockProbe, workers: Workers = SERIAL, xp: Any = np) -> tuple[FloatArray, FloatArray]:
    """Probe all blocks once; cos(probe, v) and cos(probe, centroid), both (N,)."""
    if not probe.parts:
        return np.empty(0), np.empty(0)
    drawn = workers.map(lambda number, _part: probe.draw(number), probe.parts)
    cos_self, cos_centroid = zip(*drawn, strict=True)
    return xp.concatenate(cos_self), xp.concatenate(cos_centroid)


def _undisturbed(cosines: FloatArray, xp: Any) -> tuple[FloatArray, FloatArray]:
    return xp.ones_like(cosines), cosines
