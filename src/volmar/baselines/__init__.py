"""Comparison methods of the papers that are not in scikit-learn."""
