"""Fitted models of ratings: predictions, recommendations, output files."""
