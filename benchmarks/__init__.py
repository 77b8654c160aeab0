"""Benchmarks: ratios against the rivals in one run, threads pinned. ``make bench``."""
