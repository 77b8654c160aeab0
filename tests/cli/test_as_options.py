"""Messages with options in place of argument names."""

import pytest

from volmar.cli.console import as_options


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("give missing='drop', or scale='none'", "give --missing drop, or --scale none"),
        ("scale='max' must be one of", "--scale max must be one of"),
        ("kinds={'NAME': 'numeric'} uses one", "--kind NAME=numeric uses one"),
        (
            "kinds={'NAME': 'numeric'} or kinds={'NAME': 'categorical'} uses one",
            "--kind NAME=numeric or --kind NAME=categorical uses one",
        ),
        ("after columns=, drop= and id_column=; it", "after --columns, --drop and --id; it"),
        ("give another name, or force=True to", "give another name, or --force to"),
        (
            "reject=0.01 rejects; reject must be less",
            "--reject 0.01 rejects; --reject must be less",
        ),
        ("drop the columns; a scale=x", "drop the columns; a scale=x"),
    ],
)
def test_arguments_become_options(text, wanted):
    assert as_options(text) == wanted
