"""More than two clusters at once, by one hyperplane a cluster."""
