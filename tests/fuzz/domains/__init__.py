"""What is attacked, one file a domain; each has `draw_case`, which makes a case of a generator."""

import importlib

#: Domains, and the share of the cases that each gets.
SHARES = {
    "estimators": 0.5,
    "functions": 0.2,
    "models": 0.2,
    "objects": 0.02,
    "commands": 0.05,
    "tables": 0.2,
}


def draw_case(domain, number):
    """Return case `number` of a domain; nothing but these two decides what it is."""
    from fuzz.draw import Draw

    module = importlib.import_module(f"fuzz.domains.{domain}")
    return module.draw_case(Draw(domain, number))
