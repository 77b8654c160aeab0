"""Tests for one mode against more in a one-dimensional sample."""
