"""Words that have an order: answers of surveys, sizes, levels, ranges of numbers."""

from __future__ import annotations

import re

__all__ = ["known_order"]

# From low to high. Words of one place in a scale are alternatives.
_SCALES: tuple[tuple[str, ...], ...] = (
    (
        "strongly disagree|fully disagree|totally disagree|completely disagree|disagree strongly",
        "disagree",
        "somewhat disagree|slightly disagree|rather disagree|tend to disagree|disagree somewhat",
        "neutral|neither agree nor disagree|neither|undecided|unsure|neither disagree nor agree",
        "somewhat agree|slightly agree|rather agree|tend to agree|agree somewhat",
        "agree",
        "strongly agree|fully agree|totally agree|completely agree|agree strongly",
    ),
    (
        "very dissatisfied|extremely dissatisfied",
        "dissatisfied|unsatisfied",
        "somewhat dissatisfied|slightly dissatisfied",
        "neutral|neither|neither satisfied nor dissatisfied",
        "somewhat satisfied|slightly satisfied",
        "satisfied",
        "very satisfied|extremely satisfied",
    ),
    (
        "never",
        "almost never|hardly ever|very rarely",
        "rarely|seldom",
        "occasionally",
        "sometimes",
        "frequently",
        "often|usually|mostly",
        "very often|almost always",
        "always",
    ),
    (
        "daily|every day",
        "weekly|every week",
        "biweekly|fortnightly",
        "monthly|every month",
        "quarterly",
        "yearly|annually|annual",
        "never",
    ),
    (
        "very unlikely|extremely unlikely",
        "unlikely|rather unlikely",
        "neutral|neither|possible|possibly",
        "likely|rather likely",
        "very likely|extremely likely",
    ),
    (
        "not at all important|unimportant|not important",
        "slightly important|of little importance",
        "moderately important|neutral",
        "important",
        "very important",
        "extremely important",
    ),
    ("not at all", "a little|slightly", "somewhat|moderately", "quite", "very", "extremely"),
    (
        "very poor|very bad|terrible|awful",
        "poor|bad",
        "fair|average|ok|okay|acceptable|mediocre",
        "good",
        "very good",
        "excellent|outstanding|perfect",
    ),
    (
        "none|zero|no",
        "very low|lowest|minimal",
        "low",
        "medium low|below average",
        "medium|moderate|mid|middle|normal|average",
        "medium high|above average",
        "high",
        "very high|highest|critical|extreme",
    ),
    ("none", "mild", "moderate", "severe", "very severe|critical"),
    ("tiny|very small", "small", "medium", "large|big", "very large|extra large|huge"),
    (
        "xxxs|3xs",
        "xxs|2xs",
        "xs",
        "s",
        "m",
        "l",
        "xl",
        "xxl|2xl",
        "xxxl|3xl",
        "xxxxl|4xl",
    ),
    ("much worse", "worse", "same|about the same|unchanged", "better", "much better"),
    ("beginner|novice", "elementary", "intermediate", "advanced", "expert"),
    ("bronze", "silver", "gold", "platinum", "diamond"),
    ("first", "second", "third", "fourth", "fifth", "sixth"),
    (
        "no schooling|none",
        "primary|primary school|elementary school",
        "secondary|secondary school|middle school",
        "high school|highschool|upper secondary",
        "college|some college|associate|associate degree",
        "bachelor|bachelors|bachelor's|bachelor degree|bachelor's degree|undergraduate",
        "master|masters|master's|master degree|master's degree|graduate",
        "doctorate|phd|doctoral|doctor",
    ),
)
_PLACES = [
    {word: place for place, words in enumerate(scale) for word in words.split("|")}
    for scale in _SCALES
]
# A number at the front: "1 - bad", "18-24", "65+", "< 10", "10k to 20k".
_NUMBER = re.compile(r"^(under|below|less than|up to|over|above|more than|at least|[<>]=?)?\s*"
                     r"[$€£]?\s*(\d[\d,]*\.?\d*)\s*(k|m)?(?![a-z])", re.IGNORECASE)  # fmt: skip
_BELOW = ("under", "below", "less than", "up to", "<", "<=")
_THOUSANDS = {"k": 1e3, "m": 1e6}


def known_order(values: list[str]) -> list[str] | None:
    """Return text values from low to high; None where their order is not known.

    There must be three at least, all of one scale. A word may be written with capitals, "_" or
    "-"; ranges of numbers are ordered by their first number.

    >>> known_order(["Agree", "Disagree", "Neutral", "Strongly agree"])
    ['Disagree', 'Neutral', 'Agree', 'Strongly agree']
    >>> known_order(["65+", "18-24", "25-64"])
    ['18-24', '25-64', '65+']
    """
    if len(values) < 3:
        return None
    words = [" ".join(re.split(r"[\s_-]+", value.strip().lower())) for value in values]
    for places in _PLACES:
        found = [places.get(word) for word in words]
        if None not in found and len(set(found)) == len(found):
            return [value for _, value in sorted(zip(found, values, strict=True))]
    return _by_numbers(values)


def _by_numbers(values: list[str]) -> list[str] | None:
    """Order values that begin with different numbers, and are more than a number and a unit."""
    keys = []
    for value in values:
        match = _NUMBER.match(value.strip())
        if match is None:
            return None
        before, number, unit = match.groups()
        size = float(number.replace(",", "").rstrip(".")) * _THOUSANDS.get((unit or "").lower(), 1)
        # "under 10" comes before "10 to 20", "over 20" after "20 to 30".
        side = 0 if before is None else -1 if before.lower() in _BELOW else 1
        keys.append((size, side))
    if len(set(keys)) < len(keys):
        return None
    return [value for _, value in sorted(zip(keys, values, strict=True))]
