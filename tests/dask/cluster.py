"""A scheduler and workers in processes of their own, which tests may kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from distributed import Client


class Cluster:
    """Starts and kills the processes of a cluster. Use it as a context manager."""

    def __init__(self, folder: Path, n_workers: int = 2, memory: str = "0", port: int = 0) -> None:
        self.file = folder / "scheduler.json"
        self.folder = folder
        self.memory = memory
        self.port = port
        self.workers: list[subprocess.Popen] = []
        self.n_workers = n_workers

    def __enter__(self) -> Cluster:
        self.start_scheduler()
        for _ in range(self.n_workers):
            self.add_worker()
        return self

    def __exit__(self, *exception: object) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
        for process in (*self.workers, self.scheduler):
            process.wait(30)

    def start_scheduler(self) -> None:
        self.scheduler = self._start(
            "scheduler", "--port", str(self.port), "--host", "127.0.0.1", "--no-dashboard", "--no-jupyter"
        )
        given_up = time.monotonic() + 60
        while not self.file.exists() and time.monotonic() < given_up:
            time.sleep(0.05)

    def add_worker(self) -> None:
        self.workers.append(
            self._start(
                "worker", "--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1",
                "--memory-limit", self.memory, "--local-directory", str(self.folder), "--death-timeout", "60",
            )
        )  # fmt: skip

    def kill_worker(self, number: int = 0) -> None:
        process = self.workers.pop(number)
        process.send_signal(signal.SIGKILL)
        process.wait(30)

    def client(self, **options: object) -> Client:
        client = Client(scheduler_file=str(self.file), **options)
        if self.workers:
            client.wait_for_workers(len(self.workers), timeout=120)
        return client

    def _start(self, kind: str, *options: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "dask", kind, "--scheduler-file", str(self.file), *options]
        with (self.folder / f"{kind}.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"})
