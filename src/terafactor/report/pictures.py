"""Arrays as PNG pictures embedded in the page."""

from __future__ import annotations

import base64
import math
import struct
import zlib

import numpy as np
import numpy.typing as npt

from terafactor._typing import Array

Pixels = npt.NDArray[np.uint8]

BLUE, ORANGE = (0, 114, 178), (213, 94, 0)
"""Colors of negative and positive numbers (Okabe and Ito), which color-blind readers can distinguish."""

MAX_PIXELS = 1_200_000
"""Pixels of one sprite sheet; atoms are shrunk to fit."""


def picture(pixels: Pixels) -> str:
    """Return pixels (height, width) or (height, width, 3 or 4) of type uint8 as a PNG data URL.

    Examples
    --------
    >>> import numpy as np
    >>> from terafactor.report import picture
    >>> picture(np.zeros((2, 2), np.uint8))[:22]
    'data:image/png;base64,'
    """
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode("ascii")


def png(pixels: Pixels) -> bytes:
    """Return pixels as the bytes of a PNG file: gray, RGB or RGBA."""
    height, width = pixels.shape[:2]
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    color_type = {1: 0, 3: 2, 4: 6}[channels]
    rows = pixels.reshape(height, width, channels)
    differences = np.diff(
        rows, axis=1, prepend=np.zeros((height, 1, channels), np.uint8)
    )  # PNG filter 1: difference to the left, modulo 256
    lines = np.column_stack([np.full(height, 1, np.uint8), differences.reshape(height, -1)])
    header = struct.pack(">IIBBBBB", width, height, 8, color_type, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, content) for name, content in parts)


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def gray(values: Array, scale: Array | float | None = None) -> Pixels:
    """Return pictures (..., height, width, channels) as bytes: ``-scale`` is black, zero mid-gray, ``scale`` white.

    By default the scale of each picture is its largest absolute value. Missing values are mid-gray.
    """
    values = np.nan_to_num(values, nan=0.0)
    if scale is None:
        scale = np.abs(values).max(axis=(-3, -2, -1), keepdims=True)
    scale = np.where(np.asarray(scale) > 0, scale, 1)
    return np.asarray(np.clip(127.5 + 127.5 * values / scale, 0, 255).astype(np.uint8))


def signed(values: Array, scale: float) -> Pixels:
    """Return values (height, width) as colors: orange above zero, blue below; larger values are more opaque.

    Zero is transparent, so that the picture fits light and dark pages.
    """
    strength = np.clip(np.abs(values) / (scale or 1), 0, 1)
    pixels = np.empty((*values.shape, 4), np.uint8)
    pixels[..., :3] = np.where(values[..., np.newaxis] > 0, ORANGE, BLUE)
    pixels[..., 3] = np.round(strength * 15) * 17  # sixteen levels are enough for the eye and compress well
    pixels[pixels[..., 3] == 0] = 0
    return pixels


def sprite(pictures: Pixels, across: int) -> Pixels:
    """Return pictures (n, height, width, channels) as one sprite sheet, ``across`` per row, without gaps."""
    n_pictures, height, width, channels = pictures.shape
    down = math.ceil(n_pictures / across)
    cells = np.zeros((down * across, height, width, channels), np.uint8)
    cells[:n_pictures] = pictures
    lines = cells.reshape(down, across, height, width, channels).swapaxes(1, 2)
    joined = lines.reshape(down * height, across * width, channels)
    return joined[..., 0] if channels == 1 else joined


def shrink(pictures: Array, max_pixels: int) -> Array:
    """Return pictures (n, height, width, channels) with at most this many pixels each: means over blocks."""
    n_lines, n_columns = pictures.shape[1:3]
    factor = math.ceil(math.sqrt(n_lines * n_columns / max_pixels))
    if factor <= 1:
        return pictures
    across = min(factor, n_columns)
    down = max(min(factor, n_lines), math.ceil(n_lines * (n_columns // across) / max_pixels))  # where it is narrow
    down = min(down, n_lines)
    across = min(max(across, math.ceil(n_lines // down * n_columns / max_pixels)), n_columns)
    height, width = n_lines // down, n_columns // across
    cut = pictures[:, : height * down, : width * across]
    return np.asarray(cut.reshape(-1, height, down, width, across, cut.shape[3]).mean(axis=(2, 4)))
