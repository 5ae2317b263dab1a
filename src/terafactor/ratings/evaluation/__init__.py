"""Metrics, evaluation of a fitted model, and cross-validation."""
