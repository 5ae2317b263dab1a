"""Data access: sources that read a matrix in parts, masks over features, and streams of batches."""

from terafactor.data.batch import Batch, SparseBatches
from terafactor.data.describe import describe_as, open_description
from terafactor.data.open import open_source
from terafactor.data.packed.writer import pack
from terafactor.data.source import FeatureTiles, MatrixSource
from terafactor.data.sources.array import ArraySource
from terafactor.data.sources.patches import PatchSource
from terafactor.data.sources.sparse import SparseSource
from terafactor.data.stream import BatchStream

__all__ = [
    "ArraySource",
    "Batch",
    "BatchStream",
    "FeatureTiles",
    "MatrixSource",
    "PatchSource",
    "SparseBatches",
    "SparseSource",
    "describe_as",
    "open_description",
    "open_source",
    "pack",
]
