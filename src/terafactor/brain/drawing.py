"""Pictures of maps: the outlines of all maps on slices, as in the figures of the paper, and single maps in color."""

from __future__ import annotations

from typing import Any

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.data.sources.formats import require

AXES = {"sagittal": 0, "coronal": 1, "axial": 2}
SLICES = {"sagittal": 3, "coronal": 3, "axial": 6}
"""Number of slices in each direction."""

WARM, COLD = np.array([1.0, 0.55, 0.1]), np.array([0.2, 0.55, 1.0])
"""Colors of positive and negative entries of a map."""


def outline_figure(volumes: Array, background: Array, voxel_sizes: Array, title: str = "") -> Any:
    """Return a figure with the outlines of maps at half their maximum on slices of the brain, one color per map.

    Parameters
    ----------
    volumes : ndarray of shape (x, y, z, k)
        Maps.
    background : ndarray of shape (x, y, z)
        Zero outside the brain.
    voxel_sizes : ndarray of shape (3,)
        In mm.
    title : str
    """
    volumes, background = _cropped(volumes, background), _cropped(background, background)
    figure, axes = _new_figure(title)
    colors = _colors(volumes.shape[3])
    for axis, (direction, position) in zip(axes, _slice_positions(background != 0), strict=False):
        _show_slice(axis, background, direction, position, voxel_sizes)
        for number in range(volumes.shape[3]):
            peak = float(volumes[..., number].max())
            plane = _plane(volumes[..., number], direction, position)
            if peak > 0 and plane.max() > 0.5 * peak:
                axis.contour(plane, levels=[0.5 * peak], colors=[colors[number]], linewidths=1.1)
    return figure


def map_pixels(volume: Array, background: Array, voxel_sizes: Array, height: int = 110) -> Array:
    """Return one map in color on the three slices through its peak, as pixels (height, width, 3) from 0 to 255."""
    volume, background = _cropped(volume, background), _cropped(background, background)
    peak = np.unravel_index(int(np.abs(volume).argmax()), volume.shape)
    limit = float(np.abs(volume).max()) or 1.0
    low, high = _window(background)
    parts = []
    for direction, axis in AXES.items():
        anatomy, values = (_plane(image, direction, int(peak[axis])) for image in (background, volume))
        gray = np.where(anatomy == 0, 0, np.clip((anatomy - low) / (high - low), 0.15, 1))
        strength = np.minimum(1, 1.5 * np.abs(values) / limit)[..., np.newaxis]
        hue = np.where(values[..., np.newaxis] > 0, WARM, COLD) * (0.5 + 0.5 * strength)
        shown = np.where(strength > 0.05, hue, 0.75 * gray[..., np.newaxis])
        across, up = (voxel_sizes[other] for other in range(3) if other != axis)
        parts.append(_resized(shown[::-1], height, round(height * shown.shape[1] * across / (shown.shape[0] * up))))
    return (255 * np.concatenate(parts, axis=1)).astype(np.uint8)


def figure_pixels(figure: Any) -> Array:
    """Return a figure as pixels (height, width, 3)."""
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())[..., :3].copy()


def _resized(pixels: Array, height: int, width: int) -> Array:
    """Return pixels resized by nearest-neighbor interpolation."""
    down = np.arange(height) * pixels.shape[0] // height
    across = np.arange(width) * pixels.shape[1] // max(width, 1)
    return pixels[down][:, across]


def _new_figure(title: str, rows: int = 2) -> tuple[Any, list[Any]]:
    """Return a dark figure and its axes, without the global state of pyplot."""
    require("matplotlib", extra="brain", purpose="drawing maps")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = sum(SLICES.values()) // rows
    figure = Figure(figsize=(2.0 * columns, 2.1 * rows + 0.3), layout="constrained", facecolor="black")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.ravel():
        axis.set_axis_off()
    if title:
        figure.suptitle(title, color="white", fontsize=11)
    return figure, list(axes.ravel())


def _cropped(volumes: Array, background: Array) -> Array:
    """Return volumes (x, y, z, ...) cropped to the brain, with one empty voxel on each side."""
    found = np.argwhere(background != 0)
    first, last = (found.min(axis=0), found.max(axis=0)) if len(found) else ((0, 0, 0), np.array(background.shape) - 1)
    box = tuple(slice(start, stop + 1) for start, stop in zip(first, last, strict=True))
    border = [(1, 1)] * 3 + [(0, 0)] * (volumes.ndim - 3)
    return np.pad(volumes[box], border)


def _slice_positions(inside: Array) -> list[tuple[str, int]]:
    """Return the direction and the position of slices spread over the brain, axial ones last."""
    positions = []
    for direction, count in SLICES.items():
        filled = np.flatnonzero(inside.any(axis=tuple(axis for axis in range(3) if axis != AXES[direction])))
        first, last = (int(filled[0]), int(filled[-1])) if len(filled) else (0, 0)
        margin = 0.18 * (last - first)
        positions += [(direction, round(each)) for each in np.linspace(first + margin, last - margin, count)]
    return positions


def _show_slice(axis: Any, background: Array, direction: str, position: int, voxel_sizes: Array) -> None:
    plane = _plane(background, direction, position)
    low, high = _window(background)
    across, up = (voxel_sizes[other] for other in range(3) if other != AXES[direction])
    shown = np.ma.masked_where(plane == 0, plane)
    axis.imshow(shown, origin="lower", cmap="gray", vmin=low, vmax=high, aspect="auto")
    axis.set_aspect(float(up / across))


def _window(background: Array) -> tuple[float, float]:
    """Return the intensities drawn as black and white."""
    inside = background[background != 0]
    low, high = np.percentile(inside, [1, 99]) if inside.size else (0.0, 1.0)
    return float(low - 0.1 * (high - low)) - 1e-6, float(high) + 1e-6


def _plane(volume: Array, direction: str, position: int) -> Array:
    """Return a slice with its vertical axis first."""
    return np.take(volume, position, axis=AXES[direction]).T


def _colors(count: int) -> Array:
    """Return RGB colors (count, 3) that differ between consecutive maps: hues in steps of the golden ratio."""
    from matplotlib.colors import hsv_to_rgb

    hues = (np.arange(count) * 0.618034) % 1.0
    levels: Indices = np.arange(count) % 3
    return hsv_to_rgb(np.column_stack([hues, 0.55 + 0.2 * levels / 2, np.full(count, 1.0)]))
