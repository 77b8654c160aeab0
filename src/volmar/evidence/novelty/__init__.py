"""Rows that belong to no cluster: distances within clusters, and their calibration."""
