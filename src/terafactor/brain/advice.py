"""Warnings about fits whose maps are likely not useful, each with the numbers that show it and a remedy."""

from __future__ import annotations

import numpy as np

from terafactor._format import count, number, percent
from terafactor._typing import Array
from terafactor.brain import maps
from terafactor.dictionary.advice import Advice
from terafactor.problem import Problem

FEW_VISITS = 10
"""Warn below this number of steps per voxel: maps then explain at least 5 % less of the held-out variance."""

SHRUNK = 0.5
"""Warn if the ridge penalty reduces the explained variance to less than this share of it."""

ENERGY_SHARE = 0.3
"""Suggested alpha, divided by the squared norm of a map spread evenly over 1/k of the voxels: 2e-4 for 30 000 voxels
and k=20."""

GLOBAL_SHARE, GLOBAL_DOMINANCE = 0.1, 2.0
"""Warn if the global signal explains at least this share of the variance, and this many times as much as the next
component. In simulated studies, maps correlate with networks by 0.88 at a share of 13 %, and by 0.96 if the global
signal is regressed out. If the data consists of a few networks, their mean explains much, but not much more than the
next component."""


def atlas_advice(
    rows: Array,
    components: Array,
    problem: Problem,
    *,
    regressed: bool,
    n_volumes: int,
    n_visits: float,
    n_epochs: float,
) -> list[Advice]:
    """Return warnings about a finished fit.

    Parameters
    ----------
    rows : ndarray of shape (m, p)
        Some of the volumes, masked and cleaned.
    components : ndarray of shape (k, p)
    problem : Problem
    regressed : bool
        Whether the global signal was regressed out.
    n_volumes : int
        Number of volumes of the fit.
    n_visits : float
        Number of steps that used each voxel.
    n_epochs : float
        Default number of passes.
    """
    if not rows.any():
        return [
            Advice(
                f"the {count(n_volumes)} volumes are constant in time inside the mask, so the maps are noise: check "
                "the images and the mask"
            )
        ]
    return [
        *_too_many_maps(len(components), n_volumes),
        *_few_visits(n_visits, n_epochs),
        *_strong_penalty(rows, components, problem.alpha),
        *([] if regressed else _global_signal(rows)),
    ]


def _too_many_maps(n_components: int, n_volumes: int) -> list[Advice]:
    if n_components <= n_volumes:
        return []
    return [
        Advice(
            f"n_components={n_components} maps were learned from {count(n_volumes)} volumes, which have no more than "
            f"{count(n_volumes)} independent patterns: reduce n_components, or add images"
        )
    ]


def _few_visits(n_visits: float, n_epochs: float) -> list[Advice]:
    if n_visits >= FEW_VISITS:
        return []
    return [
        Advice(
            f"each voxel was used in {number(n_visits)} steps, too few for the maps to converge: "
            f"pass n_epochs={number(n_epochs)} or None, the default"
        )
    ]


def _strong_penalty(rows: Array, components: Array, alpha: float) -> list[Advice]:
    possible = maps.explained_variance([rows], components, per_component=False)
    found = maps.explained_variance([rows], components, per_component=False, alpha=alpha)
    if found >= SHRUNK * possible:
        return []
    better = ENERGY_SHARE * len(components) / components.shape[1]
    size = float(np.median(maps.l1_l2_ratios(components) ** 2))
    return [
        Advice(
            f"alpha={number(alpha)} is too strong: the maps explain {percent(found)} of the variance, and would "
            f"explain {percent(possible)} without a penalty; the median map covers {count(size)} of "
            f"{count(components.shape[1])} voxels; try alpha={better:.1g}"
        )
    ]


def _global_signal(rows: Array) -> list[Advice]:
    share, next_share = maps.global_signal_shares(rows)
    if share < GLOBAL_SHARE or share < GLOBAL_DOMINANCE * next_share:
        return []
    return [
        Advice(
            f"the global signal, the mean over voxels, explains {percent(share)} of the variance, and can turn maps "
            "into speckle: pass global_signal='regress' (--global-signal regress) to regress it out"
        )
    ]
