"""Benchmarks: each bar is a ratio of two times taken in one run, or a count; see docs/benchmarks.md."""
