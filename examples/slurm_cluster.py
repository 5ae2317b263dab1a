"""Learn on the nodes of a SLURM queue with dask-jobqueue (``pip install dask-jobqueue``).

Adapt the queue, the memory and the paths; all nodes must see the store under the same path. Run it in a small job, or
in ``tmux`` on a login node: the driver needs little processor time, and four times the memory of the model.
"""

from dask.distributed import Client
from dask_jobqueue import SLURMCluster  # not a dependency of terafactor

from terafactor import train
from terafactor.dask import MaskedDictionaryLearning

if __name__ == "__main__":
    # Each job runs 8 workers with one thread. Jobs may start late, be preempted and return: the fit continues.
    cluster = SLURMCluster(queue="long", cores=8, processes=8, memory="32GB", walltime="08:00:00")
    cluster.adapt(minimum_jobs=1, maximum_jobs=8)
    with Client(cluster) as client:
        model = MaskedDictionaryLearning(
            n_components=70, penalty="l2", constraint="l1", shards=32, random_state=0, client=client, timeout=3600
        )
        # Checkpoints are in the run directory: if the driver dies, run the same line with resume=True.
        train(model, "/scratch/study.packed", "/scratch/atlas-run")
