"""Detection of rows that belong to no cluster, by calibrated distances within clusters."""
