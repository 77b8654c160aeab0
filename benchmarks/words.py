"""``python -m benchmarks.words [CHECKOUT]``: uses of words that the style guide replaces.

Counted are comments, docstrings and other texts in Python files, and pages. Names in code are not,
nor are generated tables. Give the folder of another checkout to count that one.
"""

import argparse
import re
import tokenize
from pathlib import Path

from benchmarks.table import Table

HERE = Path(__file__).resolve().parents[1]
CODE = ("src", "tests", "benchmarks", "reproduction", "examples", "docs")
PAGES = ("*.md", "*.rst", "*.html", "*.txt")
# Not our words: generated tables and pages, and the list of words itself.
LEFT_OUT = (
    re.compile(r"^docs/(tables|reproduction|_build|api|auto_examples)/"),
    re.compile(r"^docs/reproduction\.md$"),
    re.compile(r"^(benchmarks/words\.py|tests/benchmarks/test_words\.py|CHANGELOG\.md)$"),
    re.compile(r"^constraints"),
    re.compile(r"/fuzz/"),
)
# Words with one meaning here: none of them should be left.
NEVER = {
    "price (for C or an offset)": r"prices?",
    "dear (for expensive)": r"dear(er|est)?",
    "told": r"told",
    "speaks of, speak about": r"(speaks?|spoke) (of|about|for)",
    "mend": r"mend(s|ed|ing)?",
    "rightly, put right": r"rightly|put(s|ting)? right|set right",
    "parted, parting": r"parted|parting",
    "had no part in": r"had no part",
    "becomes of": r"becomes? of",
    "seed of all chance": r"of all chance|without chance",
    "whoever": r"whoever|whomever",
    "for nothing": r"for nothing",
    "to be had": r"to be had",
    "is to be": r"(is|are) to be",
    "for want of": r"for want of|in want of",
    "anew": r"anew",
    "fewest": r"fewest",
}
# Words that have a usual meaning, too: counted, to see the trend.
SELDOM = {
    "figure(s)": r"figures?(?! \d)",
    "says, say": r"says|said|say",
    "least": r"(?<!at )least(?! squares)",
    "most": r"(?<!at )most",
    "gaps": r"gaps",
    "hump(s)": r"humps?",
    "whatever": r"whatever",
    "how many": r"how many",
    "the rows' own": r"of its own|of their own",
}


def texts_of(path):
    """Return the prose of a file: all of a page, comments and strings of Python code."""
    if path.suffix != ".py":
        return [path.read_text(encoding="utf-8")]
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)}
    with tokenize.open(path) as file:
        tokens = tokenize.generate_tokens(file.readline)
        return [token.string for token in tokens if token.type in kinds]


def files_of(root):
    """Return the files with prose of a checkout, by their path in it."""
    found = [path for folder in CODE for path in (root / folder).rglob("*.py")]
    for pattern in PAGES:
        found += root.glob(pattern)
        found += [path for folder in CODE for path in (root / folder).rglob(pattern)]
    files = {path.relative_to(root).as_posix(): path for path in found}
    return {
        name: files[name]
        for name in sorted(files)
        if not any(one.search(name) for one in LEFT_OUT)
    }


def places(root, patterns):
    """Return the files in which each kind of word occurs, once for each use."""
    compiled = {name: re.compile(rf"\b({one})\b", re.IGNORECASE) for name, one in patterns.items()}
    found = {name: [] for name in patterns}
    for name, path in files_of(root).items():
        for text in texts_of(path):
            for word, pattern in compiled.items():
                found[word] += [name] * len(pattern.findall(text))
    return found


def main():
    """Print the counts, by folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", nargs="?", type=Path, default=HERE)
    root = parser.parse_args().checkout.resolve()
    table = Table(("word", "src", "pages", "tests and the rest"))
    for word, used in places(root, {**NEVER, **SELDOM}).items():
        in_source = sum(name.startswith("src/") for name in used)
        on_pages = sum(not name.endswith(".py") and not name.startswith("src/") for name in used)
        table.add(word, in_source, on_pages, len(used) - in_source - on_pages)
    print(table.render())


if __name__ == "__main__":
    main()
