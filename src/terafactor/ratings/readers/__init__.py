"""Readers of rating files: MovieLens, Netflix Prize, RecBole, CSV, TSV, Parquet, NumPy."""

from terafactor.ratings.readers.netflix import read_netflix
from terafactor.ratings.readers.read import read_ratings
from terafactor.ratings.readers.titles import read_titles

__all__ = ["read_netflix", "read_ratings", "read_titles"]
