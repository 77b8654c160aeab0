"""How a margin method sees rows: as they are, under a kernel, by landmarks or basis vectors."""
