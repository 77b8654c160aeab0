"""The margin engine: problem, losses, certified descent, the papers' nested loops, starts."""
