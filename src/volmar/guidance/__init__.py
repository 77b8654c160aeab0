"""What the user knows of the clusters: labels of some rows, rows that belong together, sizes."""
