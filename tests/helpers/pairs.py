"""Pairs of functions and inputs, instead of all combinations."""


def spread(cases, kinds, n):
    """Return each case with n of the kinds in turn, so that every kind is used about equally."""
    kinds = list(kinds)
    return [
        (*case, kinds[(n * i + j) % len(kinds)]) for i, case in enumerate(cases) for j in range(n)
    ]
