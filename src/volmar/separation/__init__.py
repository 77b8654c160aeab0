"""Maximin separation probability: clustering (MSPC) and a classifier by the same criterion."""
