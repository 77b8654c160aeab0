"""One mode or more? Tests of a sample on the line."""
