"""Errors, rankings and cross-validation of models of ratings."""
