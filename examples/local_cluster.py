"""Learn on a cluster of worker processes on one machine. Run it as a script, or cell by cell in an editor.

The same code runs on any Dask cluster: only the line that creates the client changes.
"""

# %% A matrix on disk: 40 records of 100 rows, each a file.
import tempfile
from pathlib import Path

import numpy as np
from dask.distributed import Client

from terafactor import MaskedDictionaryLearning as LocalDictionaryLearning
from terafactor.dask import MaskedDictionaryLearning, pack
from terafactor.datasets import make_planted, matched_correlation


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    X, planted = make_planted(n_samples=4000, n_features=500, n_atoms=20)
    for number, rows in enumerate(np.split(X, 40)):
        np.save(folder / f"record-{number:02d}.npy", rows)

    # %% Two worker processes. On a cluster: Client("tcp://scheduler:8786"), or Client(SLURMCluster(...)).
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        print(client)

        # %% Pack the records, one task each, and learn from the store. Workers open the files themselves.
        store = pack(sorted(folder.glob("record-*.npy")), folder / "store")
        model = MaskedDictionaryLearning(n_components=20, shards=4, n_epochs=10, random_state=0).fit(store)
        print(f"{model.shards_} shards, {model.round_steps_} steps per round, {model.n_steps_} steps in total")
        print(f"correlation with the planted atoms: {matched_correlation(model.components_, planted):.3f}")

        # %% Codes of all rows, written by the workers, one task per record.
        codes = model.transform(store, out=folder / "codes.npy")
        print(f"codes: {codes.shape}, {(codes[:] == 0).mean():.0%} zero")

    # %% The same fit without a cluster gives the same bits.
    local = LocalDictionaryLearning(n_components=20, shards=4, n_epochs=10, random_state=0).fit(store)
    print("same bits as on one machine:", np.array_equal(local.components_, model.components_))


if __name__ == "__main__":  # worker processes import this file
    main()
