"""Held-out rows of a matrix: how many, which, and how the choice is recorded."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np

from terafactor._typing import Indices, is_number
from terafactor.data import MatrixSource
from terafactor.data.views.rows import SelectedRows, choose_records, choose_rows, rows_digest, whole_records
from terafactor.errors import DataError, ParameterError
from terafactor.runs.parameters import to_plain

logger = logging.getLogger("terafactor")

DEFAULT_SHARE, DEFAULT_MOST = 0.05, 2000

SMALL_BLOCK = 100_000_000
"""Bytes of a matrix up to which its only block of rows is split: reading all of it with every batch costs little."""


def hold_out_rows(
    source: MatrixSource, amount: Any, seed: int
) -> tuple[MatrixSource, MatrixSource | None, dict[str, Any]]:
    """Return the training rows, the held-out rows (None if there are none), and a description of the choice.

    amount: a number of rows, a share of them, "3 records" for whole records, None for the smaller of 5 % and 2 000
    rows, or the description that an earlier call returned.
    """
    asked = to_plain(amount["amount"] if isinstance(amount, Mapping) else amount)
    if asked is None:
        asked = _default(source)
    rows = _choose(source, asked, seed)
    choice = {"amount": asked, "rows": len(rows), "sha256": rows_digest(rows)}
    if isinstance(amount, Mapping) and dict(amount) != choice:
        raise DataError(f"cannot reproduce the choice of held-out rows: it was {dict(amount)}, now it is {choice}")
    if len(rows) == 0:
        return source, None, choice
    kept = np.setdiff1d(np.arange(source.shape[0]), rows, assume_unique=True)
    return SelectedRows(source, kept), SelectedRows(source, rows), choice


def _default(source: MatrixSource) -> int:
    n_rows = source.shape[0]
    if _is_one_block(source) and not _is_small(source):
        logger.warning(
            "no rows are held out: the %d rows form one block, which can only be split after packing", n_rows
        )
        return 0
    return min(int(DEFAULT_SHARE * n_rows), DEFAULT_MOST)


def _is_one_block(source: MatrixSource) -> bool:
    return len(source.records) == 1 and len(source.row_blocks(0) or (None, None)) == 1


def _is_small(source: MatrixSource) -> bool:
    return source.shape[0] * source.shape[1] * source.dtype.itemsize <= SMALL_BLOCK


def _choose(source: MatrixSource, amount: Any, seed: int) -> Indices:
    n_rows = source.shape[0]
    whole = re.fullmatch(r"(\d+) ?records?", amount) if isinstance(amount, str) else None
    if whole is not None:
        n_records = len(whole_records(source))
        _check(int(whole[1]) < n_records, amount, f"there are {n_records}, and at least one must remain for training")
        return choose_records(source, int(whole[1]), seed)
    _check(is_number(amount, Real) and (is_number(amount, Integral) or 0 <= amount < 1), amount)
    wanted = int(amount) if is_number(amount, Integral) else int(amount * n_rows)
    _check(0 <= wanted < n_rows, amount, f"there are {n_rows} rows, and at least one must remain for training")
    rows = choose_rows(source, wanted, seed, split_blocks=_is_one_block(source) and _is_small(source))
    _check(
        len(rows) < n_rows,
        amount,
        "the rows form one block, which cannot be split: pack them, or pass holdout=0 (--holdout 0)",
    )
    return rows


def _check(holds: bool, amount: Any, reason: str = "") -> None:
    if not holds:
        need = "a number of rows, a share of them between 0 and 1, or 'N records'"
        raise ParameterError(f"holdout must be {need}, got {amount!r}" + (f" ({reason})" if reason else ""))
