"""Write docs/results/clusters.md from the records."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.clusters.measure import DATA, SHARDS, STEPS
from benchmarks.pages import machines, origin, table
from benchmarks.results import load
from terafactor.solver.cluster_plan import MERGE_BANDWIDTH, SECONDS_PER_TASK, ClusterPlan

WORKERS, NETWORKS, DISKS = (1, 2, 4, 8, 16, 32, 64), (1, 10, 100), (0.2, 1.0, 5.0)
"""Clusters on paper: threads, Gbit/s between machines, GB/s of the disk of each worker."""

P, K, BATCH = 200_000, 70, 140
"""Features, atoms and rows per step of the studies on paper."""

INTRODUCTION = """# Rounds and clusters

Written by `make clusters` from the records in `benchmarks/output/clusters`; do not edit by hand.
[Learning on a cluster](../clusters.md) explains rounds, shards and steps.

## Steps

Median sequential steps to 1 % above the end of a fit without shards, on held-out rows. With 4 shards, all do a step at
the same time, and merge after 5. The fair rival has batches of 4 times the size, and would communicate after every
step. The last column is the ratio of the two, its median and quartiles over seeds: shards are evaluated after every
fifth step only, their rival after each.
"""

CRITICAL = """On paper, the same numbers of steps at p = 200,000, k = 70, with batches of 140 ({step:.2f} s per step
on one thread) and 4 workers at 10 Gbit/s, in seconds:
"""

OVERHEAD = """## Time of a round

Packed store, p = 200,000, k = 70, l1 ball, batches of 40, 2 shards, 5 steps. Driver, scheduler and workers share two
cores. Ideal: the time on two threads of one process, and {n_states} states of {state:.0f} MB at {bandwidth:.2f} GB/s,
the speed at which Dask moves such an array between processes here. All ways gave {models}. A step on one thread, alone,
takes {step:.2f} s.
"""

STUDY = """## A study of 2 TB, on paper

Hours for a pass over 2,000 records of 1,200 volumes with 200,000 voxels, 70 maps, batches of 140. Columns: network
between machines, disk of each worker, which it does not share. The time of a round is that of `terafactor plan`, with
{step:.2f} s per step on one thread (measured with batches of 40, scaled by the number of operations), {merge:g} GB/s
for merges and {task:g} ms per task. A worker has one thread; a machine that runs 8 counts as 8 workers.
"""

MEMORY = """## Memory of a worker

Data of {data:,.0f} MB in 40 files. `plan` estimated {said:,.0f} MB per worker; the peaks of the workers were
{used:,.0f} MB at most, libraries and compiled kernels included. Their memory limit was a tenth of the data.
"""

RECORDS = """## One task per record

64 records of 40 x 20,000, packed as int16, encoded, and evaluated. The best of two turns; one and two workers wrote
{same}.
"""


def write_page(folder: Path, page: Path) -> None:
    """Write a section for each record."""
    records = {name: record for name in (*DATA, "overhead", "memory", "records") if (record := load(name, folder))}
    results = {name: record["result"] for name, record in records.items()}
    lines = [INTRODUCTION, *steps([results[name] for name in DATA if name in results])]
    lines += next((origin(records[name]) for name in DATA if name in records), [])
    if "overhead" in results:
        lines += critical_path([results[name] for name in DATA if name in results], results["overhead"])
    for name, section in (("overhead", overhead), ("memory", memory), ("records", record_tasks)):
        if name in records:
            lines += [*section(results[name]), *origin(records[name])]
    if "overhead" in results:
        lines += study(results["overhead"])
    lines += ["## Machine and versions", "", *machines(records.values())]
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(lines) + "\n")


def steps(results: list[dict[str, Any]]) -> list[str]:
    """Return the table of sequential steps."""
    rows = []
    for result in results:
        serial, rival, rounds = result["steps"].values()
        pairs = [pair for pair in zip(rounds, rival, strict=True) if np.isfinite(pair).any()]
        ratios = np.quantile([one / other for one, other in pairs] or [np.nan], (0.25, 0.5, 0.75), method="nearest")
        rows.append((result["title"], *(float(np.median(each)) for each in (serial, rival, rounds)),
                     f"{ratios[1]:.2f} ({ratios[0]:.2f} to {ratios[2]:.2f})"))  # fmt: skip
    return table(["data", "serial", "batches of 4 times the size", "4 shards, 5 steps per round", "ratio"], rows)


def large_step(overhead: dict[str, Any], batch: int) -> float:
    """Return the seconds of a step at p = 200,000 and k = 70 on one thread, scaled from batches of 40."""
    return float(overhead["step_on_one_thread"] * (3 * K + 4 * batch) / (3 * K + 4 * 40))


def critical_path(results: list[dict[str, Any]], overhead: dict[str, Any]) -> list[str]:
    """Return the table of times of the steps that follow each other, with merges and the network."""
    step = large_step(overhead, BATCH)
    plan = ClusterPlan(SHARDS, STEPS, SHARDS, 1.25e9, 2 * K * P * 4, step, step, 0)
    rows = []
    for result in results:
        serial, rival, rounds = (float(np.median(each)) for each in result["steps"].values())
        times = (serial * step, rival * large_step(overhead, SHARDS * BATCH), rounds / STEPS * plan.round_seconds)
        rows.append((result["title"], *times, f"{times[2] / min(times[:2]):.2f}"))
    titles = ["data", "serial", "batches of 4 times the size", "4 shards", "4 shards / best serial"]
    return [CRITICAL.format(step=step), *table(titles, rows)]


def overhead(found: dict[str, Any]) -> list[str]:
    """Return the section on the time of a round."""
    serial, threads, cluster = (float(np.median(found["seconds"][name])) for name in ("serial", "threads", "cluster"))
    text = OVERHEAD.format(
        state=found["state_bytes"] / 1e6, bandwidth=found["bandwidth"] / 1e9, n_states=found["n_states"],
        step=found["step_on_one_thread"],
        models="one model" if found["n_models"] == 1 else "DIFFERENT models",
    )  # fmt: skip
    rows = [("one shard after the other, 2 threads each", serial), ("one thread for each shard", threads),
            ("2 workers", cluster), ("ideal", found["ideal"]),
            ("2 workers / ideal", cluster / found["ideal"])]  # fmt: skip
    return [text, *table(["", "seconds per round"], rows)]


def memory(found: dict[str, Any]) -> list[str]:
    """Return the section on the memory of workers."""
    numbers = {"data": found["data_bytes"], "said": found["said"], "used": max(found["used"])}
    return [MEMORY.format(**{name: value / 1e6 for name, value in numbers.items()})]


def record_tasks(found: dict[str, Any]) -> list[str]:
    """Return the section on tasks per record."""
    one, two = found["seconds"]["1"], found["seconds"]["2"]
    rows = [(name, one[name], two[name], one[name] / two[name]) for name in one]
    text = RECORDS.format(same="the same bytes" if found["n_results"] == 1 else "DIFFERENT bytes")
    return [text, *table(["", "one worker, s", "two workers, s", "ratio"], rows)]


def study(overhead: dict[str, Any]) -> list[str]:
    """Return the table of a study of 2 TB for several clusters."""
    n_rows, step, rows = 2000 * 1200, large_step(overhead, BATCH), []
    for workers in WORKERS:
        hours = []
        for network, disk in itertools.product(NETWORKS, DISKS):
            seconds = max(step, BATCH * P * 4 / (disk * 1e9))  # the next batches are read during a step
            plan = ClusterPlan(workers, STEPS, workers, network * 1e9 / 8, 2 * K * P * 4, seconds, seconds, 0)
            per_batch = seconds if workers == 1 else plan.round_seconds / (workers * STEPS)
            hours.append(f"{n_rows / BATCH * per_batch / 3600:.2f}")
        rows.append((workers, *hours))
    titles = [f"{network} Gbit/s, {disk:g} GB/s" for network, disk in itertools.product(NETWORKS, DISKS)]
    text = STUDY.format(step=step, merge=MERGE_BANDWIDTH / 1e9, task=1e3 * SECONDS_PER_TASK)
    return [text, *table(["workers", *titles], rows)]
