"""Semi-supervised clustering: known labels, links between rows, limits on cluster sizes."""
