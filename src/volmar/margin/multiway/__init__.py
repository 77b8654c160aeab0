"""More than two clusters at once, with one hyperplane per cluster."""
