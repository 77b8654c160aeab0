"""`AutoClusterer`: the clusters of rows, of any shape, and their number."""
