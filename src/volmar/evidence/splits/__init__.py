"""Candidate splits of rows in two, and their tests on held-out rows."""
