"""Matrix completion for explicit ratings of items by users."""

from terafactor.ratings.evaluation.cross_validation import MatrixCompletionCV
from terafactor.ratings.matrix_completion import MatrixCompletion
from terafactor.ratings.readers import read_ratings
from terafactor.ratings.table.open import open_ratings
from terafactor.ratings.table.splitters import split_by_time, split_per_user, split_randomly
from terafactor.ratings.table.table import RatingTable

__all__ = [
    "MatrixCompletion",
    "MatrixCompletionCV",
    "RatingTable",
    "open_ratings",
    "read_ratings",
    "split_by_time",
    "split_per_user",
    "split_randomly",
]
