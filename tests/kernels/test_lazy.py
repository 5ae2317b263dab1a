"""Exact projections, lazily: the same as projecting whole atoms at every step, at the cost of the mask.

The sweeps are compared in open loop: both sides are given the same statistics at every step, so that only the
projections differ. In closed loop codes follow the dictionary, and rounding in float32 would be amplified by the
algorithm itself; tests/solver/test_exact.py closes the loop in float64.
"""

import numpy as np
import pytest

from terafactor._threads import Executor
from terafactor.data.masks import Masks
from terafactor.kernels import reference
from terafactor.problem import NormBall
from terafactor.solver.lazy import LARGEST_SCALE, LazyAtoms

BALLS = [
    NormBall(norm, radius=radius, l1_ratio=0.4, positive=positive)
    for norm, radius in (("l2", 1.0), ("l1", 2.0), ("elastic-net", 1.0))
    for positive in (False, True)
]
N_FEATURES, N_COMPONENTS, REDUCTION = 240, 6, 12


def statistics(n_steps, ball, n_features=N_FEATURES, reduction=REDUCTION, noise=0.1, seed=0):
    """Yield mask, code_gram (k, k) and the mask's part of data_code (k, s) of each step, for atoms that drift."""
    random = np.random.default_rng(seed)
    masks, code_gram = Masks(n_features, reduction, seed), np.zeros((N_COMPONENTS, N_COMPONENTS))
    target = 1.5 * ball.fill(random.standard_normal((N_COMPONENTS, n_features)))
    for step in range(n_steps):
        codes, weight = random.standard_normal((20, N_COMPONENTS)), (step + 1) ** -0.9
        code_gram = (1 - weight) * code_gram + weight * codes.T @ codes / 20
        if step % 50 == 49:  # what atoms head for changes, so that they shrink in places and grow in others
            target = 0.5 * target + ball.fill(random.standard_normal(target.shape))
        columns = masks.mask(step)
        wanted = target[:, columns] + noise * random.standard_normal((N_COMPONENTS, len(columns)))
        yield columns, code_gram, code_gram @ wanted


def first_atoms(ball, n_features=N_FEATURES):
    return ball.fill(np.random.default_rng(1).standard_normal((N_COMPONENTS, n_features)))


class Lazily:
    """Sweeps by the kernels, as the solver makes them."""

    def __init__(self, dictionary, ball, dtype, reduction=REDUCTION, order="F"):
        self.dictionary = np.array(dictionary, dtype, order=order)
        self.ball, self.dtype, self.executor = ball, dtype, Executor()
        self.lazy = LazyAtoms.start(self.dictionary.shape, reduction)
        self.multipliers = np.zeros(len(dictionary))

    def sweep(self, columns, code_gram, data_code):
        self.lazy.prepare(self.dictionary, columns, self.executor)
        as_written = np.ascontiguousarray(self.dictionary[:, columns])
        atoms = self.lazy.up_to_date(as_written)
        self.lazy.sweep(
            as_written, atoms, data_code.astype(self.dtype), code_gram, self.ball.lower(), self.multipliers,
            self.dictionary, columns,
        )  # fmt: skip
        self.dictionary[:, columns] = atoms
        self.lazy.finish(self.dictionary, self.executor)

    @property
    def current(self):
        return self.lazy.current(self.dictionary, self.executor)


def sweep_literally(dictionary, columns, code_gram, data_code, ball):
    """Do the same on a dictionary (k, p), in place, projecting every entry of every atom."""
    for j in range(len(dictionary)):
        atom = dictionary[j].copy()
        atom[columns] += (data_code[j] - code_gram[j] @ dictionary[:, columns]) / code_gram[j, j]
        dictionary[j] = ball.project(atom[np.newaxis])[0]


@pytest.mark.parametrize("ball", BALLS, ids=repr)
def test_the_literal_twin_is_the_reference(ball):
    twin = first_atoms(ball)
    for columns, code_gram, data_code in statistics(30, ball):
        mask, B = np.zeros(N_FEATURES), np.zeros((N_FEATURES, N_COMPONENTS))
        mask[columns], B[columns] = 1, data_code.T
        _, _, limit, positive = ball.lower()
        expected = reference.dictionary_update(
            B, code_gram, twin.T, mask, ball.norm, limit, approximate=False, rho=ball.l1_ratio, positive=positive
        ).T
        sweep_literally(twin, columns, code_gram, data_code, ball)
        np.testing.assert_allclose(twin, expected, atol=1e-12)


@pytest.mark.parametrize("ball", BALLS, ids=repr)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-4), (np.float64, 1e-9)])
def test_equals_projecting_whole_atoms_at_every_step(ball, dtype, tolerance):
    start = first_atoms(ball).astype(dtype)
    lazily, literal = Lazily(start, ball, dtype), start.astype(np.float64)
    for number, (columns, code_gram, data_code) in enumerate(statistics(2000, ball)):
        lazily.sweep(columns, code_gram, data_code)
        sweep_literally(literal, columns, code_gram, data_code.astype(dtype).astype(np.float64), ball)
        if number % 7 == 0 or number > 1980:
            current = lazily.current.astype(np.float64)
            assert np.abs(current - literal).max() <= tolerance * np.abs(literal).max()
            assert (ball.size(current) <= 1 + 1e-6).all()
            full = ball.size(literal) > 1 - 1e-12
            assert (ball.size(current)[full] >= 1 - 1e-6).all()
    assert lazily.dictionary.dtype == dtype
    if ball.norm != "l2":
        assert 0.02 < np.mean(literal != 0) < 0.5  # entries died, and not all of them


@pytest.mark.parametrize("ball", BALLS[::2], ids=repr)
def test_both_memory_orders_give_the_same_bits(ball):
    one, other = (Lazily(first_atoms(ball), ball, np.float32, order=order) for order in "FC")
    for given in statistics(60, ball):
        one.sweep(*given)
        other.sweep(*given)
    np.testing.assert_array_equal(one.current, other.current)


@pytest.mark.parametrize("ball", BALLS[::2], ids=repr)
def test_rows_may_be_met_again_before_the_cycle_ends(ball):
    random = np.random.default_rng(3)
    lazily, literal = Lazily(first_atoms(ball), ball, np.float64), first_atoms(ball)
    for _, code_gram, data_code in statistics(100, ball):
        columns = np.sort(random.permutation(N_FEATURES)[: data_code.shape[1]])
        lazily.sweep(columns, code_gram, data_code)
        sweep_literally(literal, columns, code_gram, data_code, ball)
    np.testing.assert_allclose(lazily.current, literal, atol=1e-11)


@pytest.mark.parametrize("ball", BALLS[::2], ids=repr)
def test_scales_do_not_overflow(ball):
    """Moves a million times larger than the ball at every step: the paper's recursion overflows within such a cycle."""
    reduction = 60
    lazily, literal = Lazily(first_atoms(ball), ball, np.float64, reduction), first_atoms(ball)
    for columns, code_gram, data_code in statistics(180, ball, reduction=reduction):
        lazily.sweep(columns, code_gram, 1e6 * data_code)
        sweep_literally(literal, columns, code_gram, 1e6 * data_code, ball)
        assert lazily.lazy.scales.max() < LARGEST_SCALE * 1e9
    np.testing.assert_allclose(lazily.current, literal, atol=1e-9)


def test_entries_outside_the_mask_come_back_into_no_ball_that_has_room():
    """Once the norm falls under the bound nothing is scaled: the paper's quotient of two norms would grow back."""
    ball = NormBall("l2")
    lazily = Lazily(first_atoms(ball), ball, np.float64)
    columns, code_gram, data_code = next(statistics(1, ball))
    lazily.sweep(columns, code_gram, 5 * data_code)
    before, others = lazily.current.copy(), np.setdiff1d(np.arange(N_FEATURES), columns)
    mask = Masks(N_FEATURES, REDUCTION, 0).mask(1)
    lazily.sweep(mask, code_gram, 0 * data_code)
    rest = np.setdiff1d(others, mask)
    np.testing.assert_array_equal(lazily.current[:, rest], before[:, rest])


@pytest.mark.parametrize("ball", BALLS[::2], ids=repr)
def test_unused_atoms_stay_where_they_are(ball):
    lazily = Lazily(first_atoms(ball), ball, np.float64)
    start = lazily.current[2].copy()
    for columns, code_gram, data_code in statistics(20, ball):
        code_gram = code_gram.copy()
        code_gram[2] = code_gram[:, 2] = 0
        lazily.sweep(columns, code_gram, data_code)
    np.testing.assert_array_equal(lazily.current[2], start)


def work_per_entry(ball, n_observed, reduction, noise):
    """Return what steps went through beside their masks, over six cycles, in units of the entries of the masks."""
    n_features, n_steps = n_observed * reduction, 6 * reduction
    lazily = Lazily(first_atoms(ball, n_features), ball, np.float64, reduction)
    passes = 0
    for given in statistics(n_steps, ball, n_features, reduction, noise=noise / n_features):
        before = lazily.lazy.step
        lazily.sweep(*given)
        if lazily.lazy.step <= before:  # all rows were brought up to date, or will be counted anew
            passes += 2
    lists = lazily.lazy.levels.work.sum() / (N_COMPONENTS * n_steps * n_observed)
    return lists + passes * n_features / (n_steps * n_observed)


@pytest.mark.parametrize("ball", BALLS[::2], ids=repr)
def test_the_work_of_a_step_does_not_follow_the_number_of_features(ball):
    """Scans, lists and passes over all rows included, a step goes through a few times its mask, for any p."""
    small, large = (work_per_entry(ball, 400, reduction, noise=20.0) for reduction in (10, 80))
    assert large <= 2 * small
    assert large <= 12


@pytest.mark.parametrize("ball", BALLS[::2], ids=repr)
def test_the_work_of_a_step_is_a_few_masks_when_noise_rules(ball):
    """Noise far larger than what atoms head for crowds levels in few buckets: lists grow then, docs say how much."""
    assert work_per_entry(ball, 400, 80, noise=300.0) <= 12
