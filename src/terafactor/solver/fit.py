"""Learn a dictionary from a source."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Generator, Sequence
from dataclasses import replace

import numpy as np

from terafactor._random import Purpose, generator
from terafactor._threads import single_threaded_blas
from terafactor._typing import Array, Indices
from terafactor.data import BatchStream, MatrixSource
from terafactor.data.masks import masks_of
from terafactor.data.source import read_finite
from terafactor.errors import DataError, ParameterError
from terafactor.problem import NormBall, Problem
from terafactor.solver.backends import make_backend
from terafactor.solver.callbacks import Callback
from terafactor.solver.convergence import ConvergenceMonitor
from terafactor.solver.learners import Stepper, choose_learner
from terafactor.solver.loop import Elapsed, run_loop
from terafactor.solver.maintain import Evidence, maintain
from terafactor.solver.options import SolverOptions
from terafactor.solver.rounds import Executor, LocalExecutor, RoundLearner
from terafactor.solver.state import State
from terafactor.solver.state_dict import StateDict
from terafactor.solver.step import surrogate
from terafactor.solver.warm_up import warm_up


def fit(
    source: MatrixSource,
    problem: Problem,
    options: SolverOptions,
    state: State | None = None,
    callbacks: Sequence[Callback] = (),
    *,
    sample: MatrixSource | None = None,
    first_batch: int = 0,
    elapsed: Elapsed | None = None,
    last_codes: Array | None = None,
    extra_state: StateDict | None = None,
    executor: Executor | None = None,
) -> State:
    """Learn a dictionary from a source.

    Parameters
    ----------
    source : MatrixSource
        Where rows come from.
    problem : Problem
        What is minimized.
    options : SolverOptions
        How it is minimized.
    state : State, optional
        State to continue from, changed in place. By default the first rows visited become the atoms.
    callbacks : sequence of Callback
        Called after every advance, in this order.
    sample : MatrixSource, optional
        Rows on which convergence is checked against ``options.tol``; without them the fit never stops early.
    first_batch : int
        Number of the first batch to read, when a fit resumes.
    elapsed : Elapsed, optional
        Time and bytes that an interrupted fit had used.
    last_codes : ndarray of shape (n_samples, k), optional
        Filled with the code of each row as its last step computed it; not with shards, which do not return codes.
    extra_state : StateDict, optional
        What state dicts of this fit hold in addition to the state.
    executor : Executor, optional
        Where shards run, if ``options.shards`` is more than 1; by default on threads.

    Returns
    -------
    State
        The state after the last step.

    Examples
    --------
    >>> from terafactor.solver import fit
    >>> import numpy as np
    >>> from terafactor import open_source
    >>> from terafactor.problem import Problem
    >>> from terafactor.solver import SolverOptions
    >>> X = np.random.default_rng(0).standard_normal((200, 10))
    >>> fit(open_source(X), Problem(0.1), SolverOptions(n_components=3, n_epochs=2)).n_batches
    10
    """
    warm_up(source, problem, options)
    started = time.perf_counter()
    stream = make_stream(source, options, mask_offset=0 if state is None else state.n_batches - first_batch)
    elapsed = elapsed or Elapsed()
    if state is not None and state.dictionary.dtype != source.dtype:
        raise DataError(f"the state is {state.dictionary.dtype}, but the rows are {source.dtype}: convert one of them")
    if state is None:
        state = State.start(starting_atoms(source, problem, options), problem)
        n_bytes = source.stored_bytes(first_rows(source, options))
        elapsed = replace(elapsed, bytes_read=elapsed.bytes_read + n_bytes)
    last_batch = max(1, math.ceil(options.n_epochs * stream.batches_per_epoch - 1e-9))  # 0.07 * 100 > 7
    run_loop(
        DictionaryFit(stream, problem, options, state, sample, last_codes, extra_state, executor),
        range(first_batch, last_batch),
        stream.batches_per_epoch,
        callbacks,
        max_time=options.max_time,
        elapsed=elapsed,
        started=started,
    )
    return state


def make_stream(source: MatrixSource, options: SolverOptions, mask_offset: int = 0) -> BatchStream:
    """Return the stream of batches of a fit. mask_offset: number of the mask of batch 0."""
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


class DictionaryFit:
    """A fit in progress: a learner that advances a state on the batches of a stream, with maintenance in between."""

    def __init__(
        self,
        stream: BatchStream,
        problem: Problem,
        options: SolverOptions,
        state: State,
        sample: MatrixSource | None = None,
        last_codes: Array | None = None,
        extra_state: StateDict | None = None,
        executor: Executor | None = None,
    ) -> None:
        self.last_codes = last_codes
        self.extra_state = extra_state or StateDict()
        self.stream = stream
        self.problem = problem
        self.options = options
        self.state = state
        self._backend = make_backend(options.n_threads)
        self._learner: Stepper = choose_learner(stream.source, problem, options, state, self._backend)
        if options.shards > 1:
            if last_codes is not None:
                raise ParameterError(f"last_codes needs shards=1, got shards={options.shards}")
            executor = executor or LocalExecutor(min(options.n_threads, options.shards))
            self._learner = RoundLearner(self._learner, executor, problem, options)
        self._monitor = None
        if options.tol > 0 and sample is not None:
            self._monitor = ConvergenceMonitor(sample, problem, options, stream.masks.cycle_length)
        self.may_converge = self._monitor is not None

    def steps(self, numbers: range) -> Generator[Evidence, None, None]:
        state, learner = self.state, self._learner
        with (
            self._backend,
            contextlib.closing(learner.read(self.stream, numbers.start, numbers.stop)) as parts,
        ):
            for data in parts:
                evidence = learner.advance(state, data)
                maintain(state, evidence, self.problem, self.options)
                if self.last_codes is not None:
                    self.last_codes[evidence.rows] = evidence.codes
                yield evidence

    def has_converged(self) -> bool:
        return self._monitor is not None and self._monitor.check(self.state)

    def surrogate(self) -> float:
        with self._backend as backend:
            return surrogate(self.state, self.problem, backend)

    def atoms(self) -> Array:
        return self.state.dictionary

    def state_dict(self) -> StateDict:
        return self.state.state_dict().merged_with(self.extra_state)


def first_rows(source: MatrixSource, options: SolverOptions) -> Indices:
    """Return the numbers of the first rows that a fit visits, one for each atom (k,), or fewer."""
    return make_stream(source, options).first_rows(options.n_components)


def starting_atoms(source: MatrixSource, problem: Problem, options: SolverOptions) -> Array:
    """Return the default initial atoms (k, p), made from the first rows that the fit visits.

    Examples
    --------
    >>> from terafactor.solver import starting_atoms
    >>> import numpy as np
    >>> from terafactor import open_source
    >>> from terafactor.problem import Problem
    >>> from terafactor.solver import SolverOptions
    >>> X = np.random.default_rng(0).standard_normal((200, 10))
    >>> starting_atoms(open_source(X), Problem(0.1), SolverOptions(n_components=3)).shape
    (3, 10)
    """
    rows = read_finite(source, first_rows(source, options), allow_nan=options.missing)
    if options.missing:
        np.nan_to_num(rows, copy=False, nan=0.0)
    check_scale(rows)
    with single_threaded_blas:  # the number of BLAS threads would change the last bits
        return atoms_from_rows(rows, options.n_components, problem.constraint, options.seed)


def check_scale(rows: Array) -> None:
    """Raise DataError if sums of squares of the rows overflow or underflow their type."""
    largest, limits = float(np.abs(rows).max(initial=0)), np.finfo(rows.dtype)
    least, most = math.sqrt(limits.tiny / limits.eps), math.sqrt(limits.max * limits.eps)
    if largest and not least < largest < most:
        raise DataError(
            f"the largest value in the first rows of X is {largest:.2g}, so sums of squares leave the range of "
            f"{rows.dtype}: rescale X to values between {least:.0e} and {most:.0e}, or pass X as float64"
        )


def atoms_from_rows(rows: Array, n_components: int, constraint: NormBall, seed: int) -> Array:
    """Return k atoms on the boundary of the ball, made from rows (m, p); reuses the memory of ``rows`` if m >= k.

    Each row becomes an atom. If there are fewer rows than atoms, or a row is empty (all zero, or without positive
    entries for non-negative atoms), the atom is a random mixture of the rows plus noise of their scale.
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
