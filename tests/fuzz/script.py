"""Cases as lines of Python: what runs is what a finding prints."""

import warnings


class Script:
    """Lines that were run one after the other, and the names that they defined.

    ``script["X"]`` is the value of a name, `value` that of an expression, and ``str(script)`` the
    lines: run in a fresh interpreter they give the same values.
    """

    def __init__(self, draw):
        self.lines = []
        self.names = {"__name__": "__main__"}
        self.do("import numpy as np", "import volmar")
        self.do(f"rng = np.random.default_rng({draw.whole(0, 2**31)})")

    def do(self, *lines):
        """Run lines, without imports that were run already."""
        for line in lines:
            if line in self.lines and line.startswith(("import ", "from ")):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # intended casts of NaN and similar values
                exec(line, self.names)
            self.lines.append(line)

    def value(self, expression):
        """Evaluate an expression, each time again."""
        return eval(expression, self.names)

    def __getitem__(self, name):
        return self.names[name]

    def __contains__(self, name):
        return name in self.names

    def text(self, *more):
        """Return all lines, and the given ones, as a program."""
        return "\n".join([*self.lines, *more])
