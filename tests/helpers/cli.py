"""The command line, called from tests."""

import csv

from typer.testing import CliRunner

from volmar.cli.app import app


def invoke(*arguments):
    """Run a command, given as a list of words; errors of the program are raised."""
    return CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)


def read(path):
    """Return the rows of a CSV file as dicts."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
