"""The block formats of GGUF weights, as ggml defines them, dequantised to float32.

A block holds its elements' integers and the float16 scales that they share; every element is one product, or one product
and one sum, of float32 numbers in the order written here, so that the result is the same to the bit as ggml's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Blocks: TypeAlias = NDArray[np.uint8]  # [blocks, bytes of a block]
Floats: TypeAlias = NDArray[np.float32]  # [blocks, elements of a block]


def _half(blocks: Blocks, at: int) -> Floats:
    """The float16 at byte ``at`` of each block: [blocks, 1]."""
    return blocks[:, at : at + 2].view(np.float16).astype(np.float32)


def _nibbles(packed: Blocks, run: int) -> NDArray[np.uint8]:
    """Four-bit integers: each run of bytes holds ``run`` low nibbles and then ``run`` high ones."""
    runs = packed.reshape(len(packed), -1, 1, run)
    nibbles: NDArray[np.uint8] = (runs >> np.array([[0], [4]], np.uint8)) & np.uint8(0x0F)
    return nibbles.reshape(len(packed), -1)


def _plain(dtype: Any) -> Callable[[Blocks], Floats]:
    return lambda blocks: blocks.view(dtype).astype(np.float32)


def _q4_0(blocks: Blocks) -> Floats:
    """scale, 16 bytes of nibbles: (q - 8) · scale."""
    q = _nibbles(blocks[:, 2:], 16).astype(np.int8) - 8
    return q.astype(np.float32) * _half(blocks, 0)


def _q4_1(blocks: Blocks) -> Floats:
    """scale, minimum, 16 bytes of nibbles: q · scale + minimum."""
    return _nibbles(blocks[:, 4:], 16).astype(np.float32) * _half(blocks, 0) + _half(blocks, 2)


def _q5_0(blocks: Blocks) -> Floats:
    """scale, 32 fifth bits, 16 bytes of nibbles: (q - 16) · scale."""
    fifth = np.unpackbits(blocks[:, 2:6], axis=1, bitorder="little")
    q = (_nibbles(blocks[:, 6:], 16) | (fifth << 4)).astype(np.int8) - 16
    return q.astype(np.float32) * _half(blocks, 0)


def _q8_0(blocks: Blocks) -> Floats:
    """scale, 32 signed bytes: q · scale."""
    return blocks[:, 2:].view(np.int8).astype(np.float32) * _half(blocks, 0)


def _q4_k(blocks: Blocks) -> Floats:
    """Scale of scales, scale of minima, eight 6-bit scales and minima in 12 bytes, 128 bytes of nibbles.

    Eight runs of 32 elements: q · (scale · 6-bit scale) - (minimum · 6-bit minimum). Of the 12 bytes, the first four
    hold the scales 0-3 in their low 6 bits, the next four the minima 0-3; the last four hold the low nibbles of the
    scales 4-7 and of the minima 4-7, whose upper two bits sit on top of the first eight bytes.
    """
    first, second, third = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = np.concatenate([first & 0x3F, (third & 0x0F) | ((first >> 2) & 0x30)], axis=1)
    minima = np.concatenate([second & 0x3F, (third >> 4) | ((second >> 2) & 0x30)], axis=1)
    scale = (_half(blocks, 0) * scales.astype(np.float32))[:, :, None]
    minimum = (_half(blocks, 2) * minima.astype(np.float32))[:, :, None]
    q = _nibbles(blocks[:, 16:], 32).reshape(len(blocks), 8, 32).astype(np.float32)
    return (scale * q - minimum).reshape(len(blocks), 256)


def _q6_k(blocks: Blocks) -> Floats:
    """128 bytes of nibbles, 64 of upper two bits, 16 signed scales, their scale.

    Sixteen runs of 16 elements: (q - 32) · (scale · 8-bit scale).
    """
    low = _nibbles(blocks[:, :128], 64)
    pairs = blocks[:, 128:192].reshape(len(blocks), 2, 1, 32)
    high = ((pairs >> np.array([[0], [2], [4], [6]], np.uint8)) & 0x03).reshape(len(blocks), 256)
    q = ((low | (high << 4)).astype(np.int8) - 32).reshape(len(blocks), 16, 16).astype(np.float32)
    scale = _half(blocks, 208) * blocks[:, 192:208].view(np.int8).astype(np.float32)
    return (scale[:, :, None] * q).reshape(len(blocks), 256)


@dataclass(frozen=True)
class Format:
    """A type of GGUF tensors: how many elements a block holds, in how many bytes, and what they are."""

    name: str
    elements: int
    block_bytes: int
    dequantise: Callable[[Blocks], Floats]


# By the number that the file gives.
FORMATS: Mapping[int, Format] = {
    0: Format("F32", 1, 4, _plain(np.float32)),
    1: Format("F16", 1, 2, _plain(np.float16)),
    2: Format("Q4_0", 32, 18, _q4_0),
    3: Format("Q4_1", 32, 20, _q4_1),
    6: Format("Q5_0", 32, 22, _q5_0),
    8: Format("Q8_0", 32, 34, _q8_0),
    12: Format("Q4_K", 256, 144, _q4_k),
    14: Format("Q6_K", 256, 210, _q6_k),
    30: Format("BF16", 1, 2, _plain(ml_dtypes.bfloat16)),
}
