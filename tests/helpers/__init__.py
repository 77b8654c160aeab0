"""Helpers of the tests: the path of the checkout, and code that several files share."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
