"""Tests of the gaps between given clusters."""
