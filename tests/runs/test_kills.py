"""Runs survive kills, and no damage of files goes unnoticed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_ten_kills():
    """``make soak`` does 200 of them; see soak.py. In a process of its own, as forks want one without threads."""
    script = Path(__file__).with_name("soak.py")
    done = subprocess.run(
        [sys.executable, str(script), "10", "--seed", "1"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("10 kills of a run in progress")


def test_damages():
    """Of models, checkpoints and stores; ``soak.py --damages 10000`` does more."""
    script = Path(__file__).with_name("soak.py")
    command = [sys.executable, str(script), "--damages", "400", "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "400 damages: each was refused" in done.stdout
