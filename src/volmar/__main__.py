"""Entry point of ``python -m volmar``."""

from volmar.cli import main

if __name__ == "__main__":
    main()
