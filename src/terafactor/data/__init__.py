"""Where numbers come from: sources of rows and columns, masks, and the stream of batches."""

from terafactor.data.array import ArraySource
from terafactor.data.patches import PatchSource
from terafactor.data.source import MatrixSource
from terafactor.data.stream import Batch, BatchStream

__all__ = ["ArraySource", "Batch", "BatchStream", "MatrixSource", "PatchSource"]
