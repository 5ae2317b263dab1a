"""Pictures of maps: outlines of all of them on slices, as the paper draws atlases, and one map in colour."""

from __future__ import annotations

from typing import Any

import numpy as np

from terafactor._typing import Array, Indices
from terafactor.data.sources.formats import require

AXES = {"sagittal": 0, "coronal": 1, "axial": 2}
SLICES = {"sagittal": 3, "coronal": 3, "axial": 6}
"""How many slices of each direction a picture has."""

WARM, COLD = np.array([1.0, 0.55, 0.1]), np.array([0.2, 0.55, 1.0])
"""Colours of positive and negative entries of a map."""


def outline_figure(volumes: Array, background: Array, voxel_sizes: Array, title: str = "") -> Any:
    """Return a figure with the outlines of maps at half their maximum, each in a colour, on slices of the brain.

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
    figure, axes = _sheet(title)
    colours = _colours(volumes.shape[3])
    for axis, (direction, place) in zip(axes, _places(background != 0), strict=False):
        _show_slice(axis, background, direction, place, voxel_sizes)
        for number in range(volumes.shape[3]):
            peak = float(volumes[..., number].max())
            plane = _plane(volumes[..., number], direction, place)
            if peak > 0 and plane.max() > 0.5 * peak:
                axis.contour(plane, levels=[0.5 * peak], colors=[colours[number]], linewidths=1.1)
    return figure


def map_pixels(volume: Array, background: Array, voxel_sizes: Array, height: int = 110) -> Array:
    """Return one map in colour on the three slices through its peak, as pixels (height, width, 3) from 0 to 255."""
    volume, background = _cropped(volume, background), _cropped(background, background)
    peak = np.unravel_index(int(np.abs(volume).argmax()), volume.shape)
    limit = float(np.abs(volume).max()) or 1.0
    low, high = _window(background)
    parts = []
    for direction, axis in AXES.items():
        behind, above = (_plane(image, direction, int(peak[axis])) for image in (background, volume))
        grey = np.where(behind == 0, 0, np.clip((behind - low) / (high - low), 0.15, 1))
        strength = np.minimum(1, 1.5 * np.abs(above) / limit)[..., np.newaxis]
        hue = np.where(above[..., np.newaxis] > 0, WARM, COLD) * (0.5 + 0.5 * strength)
        shown = np.where(strength > 0.05, hue, 0.75 * grey[..., np.newaxis])
        across, up = (voxel_sizes[other] for other in range(3) if other != axis)
        parts.append(_resized(shown[::-1], height, round(height * shown.shape[1] * across / (shown.shape[0] * up))))
    return (255 * np.concatenate(parts, axis=1)).astype(np.uint8)


def figure_pixels(figure: Any) -> Array:
    """Return a figure as pixels (height, width, 3)."""
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())[..., :3].copy()


def _resized(pixels: Array, height: int, width: int) -> Array:
    """Return pixels at another size, each taken from the nearest one."""
    down = np.arange(height) * pixels.shape[0] // height
    across = np.arange(width) * pixels.shape[1] // max(width, 1)
    return pixels[down][:, across]


def _sheet(title: str, rows: int = 2) -> tuple[Any, list[Any]]:
    """Return a dark figure and its axes, without the state that pyplot keeps."""
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
    """Return the part of volumes (x, y, z, ...) around the brain, with one empty voxel on each side."""
    found = np.argwhere(background != 0)
    first, last = (found.min(axis=0), found.max(axis=0)) if len(found) else ((0, 0, 0), np.array(background.shape) - 1)
    box = tuple(slice(start, stop + 1) for start, stop in zip(first, last, strict=True))
    border = [(1, 1)] * 3 + [(0, 0)] * (volumes.ndim - 3)
    return np.pad(volumes[box], border)


def _places(inside: Array) -> list[tuple[str, int]]:
    """Return slices spread over where the brain is, axial ones last."""
    places = []
    for direction, count in SLICES.items():
        filled = np.flatnonzero(inside.any(axis=tuple(axis for axis in range(3) if axis != AXES[direction])))
        first, last = (int(filled[0]), int(filled[-1])) if len(filled) else (0, 0)
        margin = 0.18 * (last - first)
        places += [(direction, round(place)) for place in np.linspace(first + margin, last - margin, count)]
    return places


def _show_slice(axis: Any, background: Array, direction: str, place: int, voxel_sizes: Array) -> None:
    plane = _plane(background, direction, place)
    low, high = _window(background)
    across, up = (voxel_sizes[other] for other in range(3) if other != AXES[direction])
    shown = np.ma.masked_where(plane == 0, plane)
    axis.imshow(shown, origin="lower", cmap="gray", vmin=low, vmax=high, aspect="auto")
    axis.set_aspect(float(up / across))


def _window(background: Array) -> tuple[float, float]:
    """Return the intensities that are drawn black and white."""
    inside = background[background != 0]
    low, high = np.percentile(inside, [1, 99]) if inside.size else (0.0, 1.0)
    return float(low - 0.1 * (high - low)) - 1e-6, float(high) + 1e-6


def _plane(volume: Array, direction: str, place: int) -> Array:
    """Return a slice with the vertical first."""
    return np.take(volume, place, axis=AXES[direction]).T


def _colours(count: int) -> Array:
    """Return colours that neighbours in the order of maps do not share: around the wheel in golden steps."""
    from matplotlib.colors import hsv_to_rgb

    hues = (np.arange(count) * 0.618034) % 1.0
    levels: Indices = np.arange(count) % 3
    return hsv_to_rgb(np.column_stack([hues, 0.55 + 0.2 * levels / 2, np.full(count, 1.0)]))
