"""Where numbers come from: sources of rows and columns, masks, and the stream of batches."""

from terafactor.data.array import ArraySource
from terafactor.data.open import open_source
from terafactor.data.pack import pack
from terafactor.data.patches import PatchSource
from terafactor.data.source import FeatureTiles, MatrixSource, Rows
from terafactor.data.sparse import SparseSource
from terafactor.data.stream import Batch, BatchStream, Stretch

__all__ = [
    "ArraySource",
    "Batch",
    "BatchStream",
    "FeatureTiles",
    "MatrixSource",
    "PatchSource",
    "Rows",
    "SparseSource",
    "Stretch",
    "open_source",
    "pack",
]
