"""Domains of cases, one file per domain. Each has `draw_case`, which draws a case."""

import importlib

#: Domains, and the fraction of cases of each.
SHARES = {
    "estimators": 0.5,
    "functions": 0.2,
    "models": 0.2,
    "objects": 0.02,
    "commands": 0.05,
    "tables": 0.2,
    "metamorphic": 0.1,
}


def draw_case(domain, number):
    """Return case `number` of a domain, which depends on nothing else."""
    from fuzz.draw import Draw

    module = importlib.import_module(f"fuzz.domains.{domain}")
    return module.draw_case(Draw(domain, number))
