"""The live view shows what is known about a run, and nothing that is not."""

import time
from types import SimpleNamespace

import pytest
from rich.console import Console

from terafactor.runs.live import LiveView
from terafactor.solver.callbacks import Snapshot
from terafactor.solver.progress import ProgressBar

ROW_BYTES = 8_000


def at_step(step, *, seconds=None, read=1.0, to_do=100, stopped_by=None, may_converge=False):
    """Return a snapshot after some steps of 40 rows. read: bytes read, as a share of those of whole rows."""
    return Snapshot(
        step=step,
        n_samples=40 * step,
        batches_done=step,
        advance=1,
        batches_to_do=to_do,
        batches_per_epoch=50,
        seconds=0.5 * step if seconds is None else seconds,
        bytes_read=int(read * 40 * step * ROW_BYTES),
        n_reseeded=0,
        end_of_epoch=False,
        stopped_by=stopped_by,
        _fit=SimpleNamespace(may_converge=may_converge),
    )


def facts(*snapshots, objectives=(), checkpoint=None, checkpoint_age=0.0):
    """Return what is shown at the last of several snapshots."""
    recorder = SimpleNamespace(history=[SimpleNamespace(objective=each) for each in objectives])
    checkpointer = SimpleNamespace(last_step=checkpoint, written_at=time.monotonic() - checkpoint_age)
    view = LiveView(recorder, checkpointer, lambda name: name, ROW_BYTES, None, "held-out objective")
    for snapshot in snapshots:
        view(snapshot)
    return view.facts(snapshots[-1])


def test_the_first_step_has_no_speed_and_no_time_left():
    shown = facts(at_step(1))
    assert shown == {"steps": "1 of 100 (pass 1 of 2 over the data)", "data read": "320 kB"}


def test_speed_and_time_left_count_from_the_first_step():
    shown = facts(at_step(1, seconds=30.0), at_step(21, seconds=40.0))  # the first step compiled for 30 s
    assert shown["speed"] == "80 rows per second, 640 kB per second"
    assert shown["time left"] == "about 40 s"


@pytest.mark.parametrize(("read", "expected"), [(1.0, "640 kB"), (1.75, "1.12 MB"), (0.0, None)])
def test_without_masks_only_the_bytes_read_are_shown(read, expected):
    assert facts(at_step(1), at_step(2, read=read)).get("data read") == expected


def test_with_masks_the_bytes_of_whole_rows_are_shown():
    assert facts(at_step(2, read=0.1))["data read"] == "64 kB (640 kB as a dense matrix)"


def test_the_objective_is_shown_once_rows_were_held_out():
    assert "held-out objective" not in facts(at_step(2))
    assert "held-out objective" not in facts(at_step(2), objectives=[None])
    assert facts(at_step(2), objectives=[3.0, 2.5, None])["held-out objective"] == "2.5 (lower is better)"


def test_the_age_of_a_checkpoint_is_in_whole_seconds():
    assert "last checkpoint" not in facts(at_step(2))
    assert facts(at_step(2), checkpoint=2)["last checkpoint"] == "just now, at step 2"
    assert (
        facts(at_step(2), checkpoint=1_000, checkpoint_age=75.2)["last checkpoint"] == "1 min 15 s ago, at step 1,000"
    )


def test_a_fit_that_may_converge_has_upper_bounds():
    shown = facts(at_step(1, may_converge=True), at_step(21, may_converge=True))
    assert shown["steps"] == "21 of at most 100 (pass 1 of at most 2 over the data)"
    assert shown["time left"] == "at most 40 s"


def test_the_end_replaces_the_time_left():
    shown = facts(at_step(1), at_step(100, stopped_by="n_epochs"))
    assert "time left" not in shown
    assert shown["end"] == "all passes over the data are done (n_epochs)"
    assert facts(at_step(1), at_step(7, stopped_by="SIGTERM"))["end"] == "stopped by SIGTERM"
    assert facts(at_step(1), at_step(7, stopped_by="SIGINT"))["end"] == "interrupted by Ctrl-C"


@pytest.mark.parametrize(("n_steps", "expected"), [(1, "1 of 1 step, "), (2, "2 of 2 steps, ")])
def test_plain_progress_counts_steps(n_steps, expected, capsys):
    ProgressBar(Console(force_terminal=False, stderr=True))(at_step(n_steps, to_do=n_steps, stopped_by="n_epochs"))
    assert expected in capsys.readouterr().err


def test_plain_progress_names_a_lost_cluster(capsys):
    ProgressBar(Console(force_terminal=False, stderr=True))(at_step(3, to_do=9, stopped_by="cluster"))
    assert "the cluster was lost" in capsys.readouterr().err
