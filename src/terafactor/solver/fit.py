"""The learning of a dictionary from a source."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from terafactor._random import Purpose, generator
from terafactor._threads import Executor
from terafactor._typing import Array, Indices
from terafactor.data import Batch, BatchStream, MatrixSource
from terafactor.data.masks import masks_of
from terafactor.data.source import read_finite
from terafactor.errors import DataError
from terafactor.kernels import atoms as atom_kernels
from terafactor.kernels._jit import compiled_now
from terafactor.problem import NormBall, Problem
from terafactor.solver.callbacks import Callback
from terafactor.solver.loop import Advance, Elapsed, run_loop
from terafactor.solver.options import SolverOptions
from terafactor.solver.position import Position
from terafactor.solver.settling import Settling
from terafactor.solver.span import is_spanned, learn_stretch, stretch_length
from terafactor.solver.state import SurrogateState
from terafactor.solver.step import step

logger = logging.getLogger("terafactor")

MOST_WAITING = 2**25
"""Bytes of a batch in memory up to which the next one is read before it is due: two take room at the same time."""

CYCLES_OF_SIZES = 10
"""Cycles of masks after which the sizes of atoms, kept by adding and subtracting, are computed from scratch."""


def fit(
    source: MatrixSource,
    problem: Problem,
    options: SolverOptions,
    state: SurrogateState | None = None,
    callbacks: Sequence[Callback] = (),
    *,
    sample: MatrixSource | None = None,
    first_batch: int = 0,
    elapsed: Elapsed | None = None,
    last_codes: Array | None = None,
    beside: Position | None = None,
) -> SurrogateState:
    """Learn a dictionary from a source.

    Parameters
    ----------
    source : MatrixSource
        Where rows come from.
    problem : Problem
        What is minimised.
    options : SolverOptions
        How.
    state : SurrogateState, optional
        Where to go on from, changed in place. By default atoms start from the first rows visited.
    callbacks : sequence of Callback
        Called after every step, in this order.
    sample : MatrixSource, optional
        Rows on which ``options.tol`` judges whether the fit has settled; without them it never does.
    first_batch : int
        Number of the first batch to read: that of the interrupted fit for one that resumes.
    elapsed : Elapsed, optional
        Time and bytes that an interrupted fit had used up.
    last_codes : ndarray of shape (n_samples, k), optional
        Takes the code of each row as its last step computed it.
    beside : Position, optional
        What positions of this fit hold besides its state.

    Returns
    -------
    SurrogateState
        The state after the last step: a usable model, whatever ended the fit.
    """
    announce_compilation()
    started = time.perf_counter()
    stream = make_stream(source, options, mask_offset=0 if state is None else state.n_batches - first_batch)
    elapsed = elapsed or Elapsed()
    if state is not None and state.dictionary.dtype != source.dtype:
        raise DataError(
            f"the state to go on from is {state.dictionary.dtype}, but the rows are {source.dtype}: convert one of them"
        )
    if state is None:
        state = SurrogateState.start(starting_atoms(source, problem, options), problem, masked=options.masked)
        n_bytes = source.stored_bytes(stream.first_rows(options.n_components))
        elapsed = replace(elapsed, bytes_read=elapsed.bytes_read + n_bytes)
    last_batch = max(1, math.ceil(options.n_epochs * stream.batches_per_epoch - 1e-9))  # 0.07 of 100 is 7
    run_loop(
        DictionaryLearner(stream, problem, options, state, sample, last_codes, beside),
        range(first_batch, last_batch),
        stream.batches_per_epoch,
        callbacks,
        max_time=options.max_time,
        elapsed=elapsed,
        started=started,
    )
    return state


def make_stream(source: MatrixSource, options: SolverOptions, mask_offset: int = 0) -> BatchStream:
    """Return the batches that a fit learns from. mask_offset: number of the mask of batch 0."""
    return BatchStream(
        source,
        options.batch_size,
        masks_of(source, options.reduction, options.seed),
        options.seed,
        whole_rows=options.statistics == "full",
        shuffle=options.shuffle,
        mask_offset=mask_offset,
        missing=options.missing,
    )


class DictionaryLearner:
    """What the loop drives: one step of the algorithm per batch of a stream. Its memory is ``state``."""

    def __init__(
        self,
        stream: BatchStream,
        problem: Problem,
        options: SolverOptions,
        state: SurrogateState,
        sample: MatrixSource | None = None,
        last_codes: Array | None = None,
        beside: Position | None = None,
    ) -> None:
        self.last_codes = last_codes
        self.beside = beside or Position()
        self.stream = stream
        self.problem = problem
        self.options = options
        self.state = state
        self._executor = Executor(options.n_threads)
        self._settling = None
        if options.tol > 0 and sample is not None:
            self._settling = Settling(sample, problem, options, stream.masks.cycle_length)

    @property
    def may_settle(self) -> bool:
        """Whether the fit ends when it has settled."""
        return self._settling is not None

    @property
    def n_steps(self) -> int:
        return self.state.n_steps

    @property
    def n_samples(self) -> int:
        return self.state.n_samples

    @property
    def n_reseeded(self) -> int:
        return self.state.n_reseeded

    def steps(self, numbers: range) -> Generator[Advance, None, None]:
        state, problem, options = self.state, self.problem, self.options
        with self._executor as executor, projecting(state, problem, options, executor):
            spanned = is_spanned(self.stream.source, problem, options, state)
            advances = self._stretch_by_stretch(numbers) if spanned else self._batch_by_batch(numbers)
            with contextlib.closing(advances):
                yield from advances

    def _batch_by_batch(self, numbers: range) -> Generator[Advance, None, None]:
        state, cycle_length = self.state, self.stream.masks.cycle_length
        with (
            contextlib.closing(self.stream.batches(numbers.start, numbers.stop)) as batches,
            contextlib.closing(Upcoming(batches, self._executor)) as upcoming,
        ):
            meanwhile = upcoming.start if self._can_read_beside() else None
            while (batch := upcoming.take()) is not None:
                codes = step(state, batch, self.problem, self.options, self._executor, meanwhile)
                self._keep(batch.rows, codes)
                check_atoms(state)
                if batch.columns is not None and state.n_batches % (CYCLES_OF_SIZES * cycle_length) == 0:
                    state.refresh_sizes(self.problem)
                yield Advance(1, batch.n_bytes)

    def _can_read_beside(self) -> bool:
        """Whether a batch may be read by one thread while another codes the one before: files are read ahead anyway."""
        source = self.stream.source
        small = self.stream.values_at_once * source.dtype.itemsize <= MOST_WAITING
        return self.options.n_threads > 1 and source.in_memory and small

    def _stretch_by_stretch(self, numbers: range) -> Generator[Advance, None, None]:
        state, source, options = self.state, self.stream.source, self.options
        length = stretch_length(source.shape[1], options.n_components, options.batch_size, source.stored_share)
        with contextlib.closing(self.stream.stretches(numbers.start, numbers.stop, length)) as stretches:
            for stretch in stretches:
                codes = learn_stretch(state, stretch, self.problem, options, self._executor)
                self._keep(stretch.rows, codes)
                check_atoms(state)
                yield Advance(len(stretch.parts), stretch.n_bytes)

    def _keep(self, rows: Indices, codes: Array) -> None:
        if self.last_codes is not None:
            self.last_codes[rows] = codes

    def has_settled(self) -> bool:
        if self._settling is None:
            return False
        if self._settling.is_due(self.state):
            self._settling.check(self.state, self.atoms())
        return self._settling.has_settled(self.state)

    def surrogate(self) -> float:
        state = self.state
        with self._executor as executor:
            return self.problem.surrogate_value(
                self.atoms(), state.code_gram, state.data_code, state.mean_penalty, executor
            )

    def atoms(self) -> Array:
        with self._executor as executor:
            return self.state.current_dictionary(executor)

    def position(self) -> Position:
        return self.state.position().with_all(self.beside)


class Upcoming:
    """The next of some batches: read when it is asked for, or before that by a thread that is free."""

    def __init__(self, batches: Generator[Batch, None, None], executor: Executor) -> None:
        self._read: Callable[[], Batch | None] = partial(next, batches, None)
        self._executor = executor
        self._started: Callable[[], Batch | None] | None = None

    def start(self) -> None:
        """Begin to read it."""
        self._started = self._executor.aside(self._read)

    def take(self) -> Batch | None:
        """Return it, None after the last one."""
        batch = (self._started or self._read)()
        self._started = None  # not before: an interrupt may come while it is read, and then close waits for it
        return batch

    def close(self) -> None:
        """Wait for what was begun, and forget it."""
        with contextlib.suppress(Exception):  # an error in what nobody asked for
            if self._started is not None:
                self._started()


@contextlib.contextmanager
def projecting(
    state: SurrogateState, problem: Problem, options: SolverOptions, executor: Executor
) -> Generator[None, None, None]:
    """Let rows of the dictionary wait for exact projections meanwhile, and be up to date at the end."""
    if state.lazy is not None and not (options.exact and state.lazy.cycle_length == math.ceil(options.reduction)):
        state.lazy = None
        state.refresh_sizes(problem)
    if state.lazy is not None:
        state.dictionary = state.lazy.resume(state.dictionary)
    try:
        yield
    finally:
        if state.lazy is not None:
            state.dictionary = state.lazy.pause(state.dictionary, executor)


def starting_atoms(source: MatrixSource, problem: Problem, options: SolverOptions) -> Array:
    """Return the atoms (k, p) that a fit starts from by itself: made from the first rows that it visits."""
    stream = make_stream(source, options)
    rows = read_finite(source, stream.first_rows(options.n_components), allow_nan=options.missing)
    if options.missing:
        np.nan_to_num(rows, copy=False, nan=0.0)
    check_scale(rows)
    with Executor():  # threads of BLAS would change last bits
        return initial_atoms(rows, options.n_components, problem.constraint, options.seed)


def check_scale(rows: Array) -> None:
    """Refuse rows whose products with each other are too large or too small for their type."""
    largest, limits = float(np.abs(rows).max(initial=0)), np.finfo(rows.dtype)
    least, most = math.sqrt(limits.tiny / limits.eps), math.sqrt(limits.max * limits.eps)
    if largest and not least < largest < most:
        raise DataError(
            f"the first rows of X are up to {largest:.2g} in size, and {rows.dtype} has no room for sums of their "
            f"squares: it takes values from {least:.0e} to {most:.0e}; rescale X"
        )


def check_atoms(state: SurrogateState) -> None:
    """Refuse to go on with atoms that are no numbers any more, as their sizes tell, or else the codes on them."""
    if not math.isfinite(state.sizes.sum() + state.code_gram.trace()):
        raise DataError(
            f"codes are so small against X that atoms overflow {state.dictionary.dtype}: alpha is too large for X, or "
            "X too small; lower alpha, rescale X, or give float64"
        )


def initial_atoms(rows: Array, n_components: int, constraint: NormBall, seed: int) -> Array:
    """Return k atoms on the boundary of the ball, made from the first rows (m, p), in their memory where it suffices.

    Each row makes an atom. Where there are fewer rows than atoms, or a row leaves nothing (zeros, or only negative
    entries for positive atoms), the atom is a random mixture of the rows plus noise of their scale.
    """
    atoms = rows
    if len(rows) < n_components:
        atoms = np.zeros((n_components, rows.shape[1]), rows.dtype)
        atoms[: len(rows)] = rows
    empty = np.array([not np.any(atom > 0 if constraint.positive else atom) for atom in atoms])
    if empty.any():
        random = generator(seed, Purpose.INITIAL_ATOMS)
        shape = (int(empty.sum()), rows.shape[1])
        mixture = random.standard_normal((shape[0], len(rows))) @ rows / math.sqrt(len(rows))
        scale = float(np.abs(rows).mean()) or 1.0
        fresh = mixture + 0.1 * scale * random.standard_normal(shape)
        atoms[empty] = np.abs(fresh) if constraint.positive else fresh
    constraint.fill_in_place(atoms)
    return atoms


def announce_compilation() -> None:
    """Say once per process that kernels are being compiled, when no earlier process left them in the cache."""
    if _announced:
        return
    _announced.append(True)
    atom_kernels.atom_sizes(np.zeros((1, 1), np.float32), 1.0, 0.0)  # the smallest kernel tells for all
    if compiled_now():
        logger.warning("compiling kernels for this machine; this takes some 15 seconds, once")


_announced: list[bool] = []
