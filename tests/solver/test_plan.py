"""What a fit will take, before it begins."""

import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from terafactor import MaskedDictionaryLearning, open_source, pack
from terafactor import _memory as memory_module
from terafactor._memory import available_memory
from terafactor.errors import ParameterError
from terafactor.solver import plan as plan_module
from terafactor.testing import CountingSource

ROWS, FEATURES, BLOCK = 320, 640, 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A matrix as a file and as a store."""
    path = tmp_path_factory.mktemp("plan")
    X = np.random.default_rng(0).standard_normal((ROWS, FEATURES)).astype(np.float32)
    np.save(path / "X.npy", X)
    pack(X, path / "store", block_rows=BLOCK)
    pack(X, path / "small", block_rows=BLOCK, dtype="int16")
    return path


def learner(**options):
    return MaskedDictionaryLearning(
        **({"n_components": 5, "batch_size": BLOCK, "n_epochs": 1, "random_state": 0} | options)
    )


def test_it_counts_what_the_fit_reads(folder):
    for name in ("X.npy", "store", "small"):
        for batch_size in (BLOCK, 2 * BLOCK, BLOCK // 2):
            estimator = learner(reduction=8, batch_size=batch_size, init=np.eye(5, FEATURES))
            plan = estimator.plan(folder / name)
            fitted = estimator.fit(folder / name)
            source = open_source(folder / name)
            judged_by = source.stored_bytes(np.arange(min(ROWS, 4 * batch_size)))
            assert plan.bytes_per_epoch == pytest.approx(fitted.history_[-1].bytes_read - judged_by, rel=0.01)
            assert plan.steps_per_epoch == fitted.n_steps_


def test_a_store_reads_its_share_and_a_file_whole_rows(folder):
    plans = {name: learner(reduction=8).plan(folder / name) for name in ("X.npy", "store", "small")}
    whole = ROWS * FEATURES * 4
    assert plans["X.npy"].bytes_per_epoch == plans["X.npy"].full_bytes_per_epoch == whole
    index = ROWS // BLOCK * open_source(folder / "store").layout.index_bytes
    assert plans["store"].bytes_per_epoch - index == pytest.approx(whole / 8, rel=0.05), "tiles have checksums"
    assert plans["small"].full_bytes_per_epoch < 0.8 * plans["store"].full_bytes_per_epoch


def test_it_counts_memory_and_time(folder):
    plan = learner(reduction=8, n_epochs=3).plan(folder / "store")
    matrix = 5 * FEATURES * 4
    assert plan.memory.model == plan.memory.start == matrix
    assert plan.memory.statistics >= matrix
    assert plan.memory.peak >= 3 * matrix
    assert 0 < plan.seconds_per_step < 60
    assert plan.seconds_per_epoch == plan.steps_per_epoch * plan.seconds_per_step
    assert plan.seconds == 3 * plan.seconds_per_epoch
    assert learner(init=np.eye(5, FEATURES)).plan(folder / "store").memory.start == 0
    assert json.loads(json.dumps(plan.as_dict()))["memory"]["peak"] == plan.memory.peak


def test_it_changes_nothing(folder):
    estimator = learner()
    estimator.plan(folder / "store")
    assert vars(estimator) == vars(learner())
    source = CountingSource(open_source(folder / "X.npy"))
    source.in_memory = True
    fitted = learner().fit(np.ones((20, 7)) + np.eye(20, 7))
    atoms = fitted.components_.copy()
    fitted.plan(source)
    assert fitted.n_features_in_ == 7
    np.testing.assert_array_equal(fitted.components_, atoms)


def test_a_single_batch_is_enough_for_a_plan():
    plan = learner(batch_size=40).plan(np.random.default_rng(0).standard_normal((9, 12)))
    assert plan.steps_per_epoch == 1
    assert plan.seconds_per_step > 0


@pytest.mark.parametrize("reduction", [1, 8])
def test_what_does_not_fit_is_refused_before_it_is_tried(folder, monkeypatch, reduction):
    monkeypatch.setattr(plan_module, "available_memory", lambda: plan_module.RESERVE + 3_000_000)
    monkeypatch.setattr(plan_module, "fit", lambda *arguments, **options: pytest.fail("it was tried"))
    with pytest.raises(
        ParameterError, match=r"learning 4000 atoms of 640 features needs .* at most (\d+) comp"
    ) as caught:
        learner(n_components=4000, reduction=reduction).plan(folder / "store")
    most = int(str(caught.value).split("at most ")[1].split()[0])
    monkeypatch.undo()
    monkeypatch.setattr(plan_module, "available_memory", lambda: plan_module.RESERVE + 3_000_000)
    learner(n_components=most, reduction=reduction).plan(folder / "store")
    with pytest.raises(ParameterError, match="at most"):
        learner(n_components=most + 1, reduction=reduction).plan(folder / "store")


def test_the_advice_names_every_way_out(folder, monkeypatch):
    monkeypatch.setattr(plan_module, "available_memory", lambda: plan_module.RESERVE + 1000)
    with pytest.raises(ParameterError, match="not even one component fits; a higher reduction"):
        learner().plan(folder / "store")
    with pytest.raises(ParameterError, match="float32 needs half"):
        learner().plan(np.ones((50, 700)))


def test_a_plan_needs_no_knowledge_of_the_machine(folder, monkeypatch):
    monkeypatch.setattr(plan_module, "available_memory", lambda: None)
    assert learner().plan(folder / "store").available_bytes is None


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with 10 000 kB left, whose files can be changed."""
    monkeypatch.setattr(memory_module, "PROC", tmp_path / "proc")
    monkeypatch.setattr(memory_module, "GROUPS", tmp_path / "groups")
    write(tmp_path, {"proc/meminfo": "MemTotal: 20000 kB\nMemAvailable: 10000 kB\n", "proc/self/cgroup": ""})
    return tmp_path


def test_memory_is_what_the_machine_has_left(machine):
    assert available_memory() == 10_000 * 1024


def test_control_groups_limit_it(machine):
    groups = {"groups/a/memory.max": "max\n", "groups/a/memory.current": "5\n", "proc/self/cgroup": "0::/a/b\n"}
    write(machine, groups | {"groups/a/b/memory.max": "7000\n", "groups/a/b/memory.current": "3000\n"})
    assert available_memory() == 4000
    write(machine, {"groups/a/memory.max": "2005\n"})
    assert available_memory() == 2000, "the group above has less"


def test_control_groups_of_version_1_limit_it(machine):
    files = {"proc/self/cgroup": "5:cpu:/x\n4:memory:/job\n", "groups/memory/job/memory.limit_in_bytes": "900\n"}
    write(machine, files | {"groups/memory/job/memory.usage_in_bytes": "1000\n"})
    assert available_memory() == 0
    stat = "inactive_file 1\ntotal_inactive_file 200\ntotal_active_file 50\n"
    write(machine, {"groups/memory/job/memory.stat": stat})
    assert available_memory() == 150


def test_files_cached_by_a_control_group_do_not_count_as_used(machine):
    write(
        machine, {"proc/self/cgroup": "0::/a\n", "groups/a/memory.max": "7000\n", "groups/a/memory.current": "6900\n"}
    )
    write(machine, {"groups/a/memory.stat": "anon 900\nfile 6000\ninactive_file 4000\nactive_file 1500\n"})
    assert available_memory() == 5600


LIMITED = """
import resource
from terafactor._memory import available_memory
resource.setrlimit(resource.RLIMIT_AS, (3 * 10**9, 3 * 10**9))
print(available_memory())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of address space are as Linux has them")
def test_the_limit_of_address_space_counts():
    found = subprocess.run([sys.executable, "-c", LIMITED], check=True, capture_output=True, text=True).stdout
    assert 0 < int(found) < 3 * 10**9


def test_it_counts_the_stored_entries_of_sparse_rows():
    rows = sparse.random_array((400, 3000), density=0.02, format="csr", dtype=np.float32, rng=np.random.default_rng(0))
    estimator = learner(init=np.eye(5, 3000, dtype=np.float32))
    plan = estimator.plan(rows)
    assert plan.bytes_per_epoch == pytest.approx(rows.nnz * 8, abs=plan.steps_per_epoch)
    assert estimator.fit(rows).history_[-1].bytes_read == rows.nnz * 8


def test_a_step_is_timed_as_one_where_several_are_done_at_once(monkeypatch):
    def steps_of_two_seconds(source, problem, options, callbacks):
        for done in range(1, 9):
            if callbacks[0](SimpleNamespace(stopped_by=None, seconds=40.0 * done, advance=20)):
                break

    monkeypatch.setattr(plan_module, "fit", steps_of_two_seconds)
    assert learner().plan(np.ones((40, 6), np.float32)).seconds_per_step == 2.0


def test_steps_are_timed_with_the_alpha_of_the_fit(monkeypatch):
    X, timed = np.random.default_rng(0).standard_normal((80, 30)), []
    monkeypatch.setattr(plan_module, "_probe", lambda source, problem, options: timed.append(problem.alpha) or 1.0)
    learner().plan(X)
    assert timed == [learner().fit(X).alpha_]
    assert timed[0] > 0
