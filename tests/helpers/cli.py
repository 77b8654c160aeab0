"""The command line, as tests call it."""

from typer.testing import CliRunner

from volmar.cli.app import app


def invoke(*arguments):
    """Run a command by its words; errors of the program are raised."""
    return CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)
