"""The command line. All of its features need ``pip install volmar[all]``."""

from __future__ import annotations

import sys
from io import TextIOWrapper


def main() -> None:
    """Run the command line, or exit with the name of a library that must be installed."""
    from volmar._files import remove_parts
    from volmar.cli.signals import catch_signals, exit_code, release_signals

    try:
        catch_signals()
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # the terminal's encoding may lack characters
        try:
            from volmar.cli.app import app
        except ImportError as error:
            sys.exit(
                f"volmar's command line needs {error.name}, which is not installed: "
                "pip install 'volmar[all]'"
            )
        app()
    except KeyboardInterrupt:  # before a command has begun
        sys.exit(exit_code())
    finally:
        remove_parts()
        release_signals()
