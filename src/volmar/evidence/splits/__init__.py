"""Candidates for splitting rows in two, and their tests on held-out rows."""
