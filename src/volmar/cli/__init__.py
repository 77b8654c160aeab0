"""The command line (needs ``pip install volmar[all]`` for all of it)."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; without its libraries say how to get them."""
    try:
        from volmar.cli.app import app
    except KeyboardInterrupt:
        sys.exit(130)
    except ImportError as error:
        sys.exit(
            f"volmar's command line needs {error.name}, which is not installed: "
            "pip install 'volmar[all]'"
        )
    try:
        app()
    except KeyboardInterrupt:  # before a command has begun
        sys.exit(130)
