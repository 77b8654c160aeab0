"""Shared by the tests: where the checkout is, and what several files need."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
