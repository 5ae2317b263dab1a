"""Runs survive kills and failing disks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_ten_kills():
    """``make soak`` does 200 of them; see soak.py. In a process of its own, as forks want one without threads."""
    script = Path(__file__).with_name("soak.py")
    done = subprocess.run([sys.executable, str(script), "10", "1"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("10 kills of a run in progress")
