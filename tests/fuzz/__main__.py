"""``make fuzz``: many cases with a fresh seed, or one case again."""

import argparse
import os
import secrets
import sys
from collections import defaultdict

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

from fuzz.domains import SHARES
from fuzz.runner import run_cases

#: Number of case numbers per seed, so that runs with different seeds share no case.
NUMBERS = 10**6


def main(arguments=None):
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=2000, help="number of cases")
    parser.add_argument("--seed", type=int, help="of the run; drawn and printed by default")
    parser.add_argument("--domain", choices=SHARES, help="one domain alone")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--case", metavar="DOMAIN:NUMBER", help="run this case again")
    given = parser.parse_args(arguments)
    if given.case:
        return _again(given.case)
    seed = secrets.randbelow(NUMBERS) if given.seed is None else given.seed
    shares = {given.domain: 1.0} if given.domain else SHARES
    cases = cases_of(seed, given.cases, shares)
    print(f"seed {seed}: {len(cases)} cases of {', '.join(shares)}", flush=True)
    progress = _Progress(len(cases))
    findings, outcomes = run_cases(cases, jobs=given.jobs, tell=progress)
    print()
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:7d}  {outcome}")
    print(progress.summary())
    kinds = [finding.kind for finding in findings]
    print(
        f"{len(cases)} cases, seed {seed}: {kinds.count('crash')} crashes, "
        f"{kinds.count('hang')} hangs, {kinds.count('broken')} broken contracts"
    )
    return 1 if findings else 0


def _again(case):
    """Run one case in a separate process, as in a run of many cases."""
    domain, _, number = case.partition(":")
    findings, outcomes = run_cases([(domain, int(number))])
    for finding in findings:
        print(finding)
    for outcome in outcomes:
        print(outcome)
    return 1 if findings else 0


def cases_of(seed, n_cases, shares=SHARES):
    """Return ``(domain, number)`` pairs of a run; runs with different seeds share none."""
    if seed < 0 or not 0 <= n_cases <= NUMBERS:
        raise ValueError(
            f"a run has at most {NUMBERS} cases and a seed of at least 0, got {n_cases} cases and "
            f"seed {seed}. Run again with another seed for more."
        )
    total, before, cases = sum(shares.values()), 0.0, []
    for domain, share in shares.items():
        first, before = round(n_cases * before / total), before + share
        last = round(n_cases * before / total)
        cases += [(domain, seed * NUMBERS + i) for i in range(last - first)]
    return cases


class _Progress:
    """Prints the progress and the findings of a run, and records the time of cases."""

    def __init__(self, total):
        self.total, self.done, self.n_printed = total, 0, 0
        self.seconds = defaultdict(list)

    def __call__(self, domain, number, seconds, findings):
        self.done += 1
        self.seconds[domain].append((seconds, number))
        for finding in findings[self.n_printed :]:
            print(f"\n{finding}", flush=True)
        self.n_printed = len(findings)
        if self.done % 500 == 0:
            text = f"{self.done} of {self.total}, {len(findings)} findings"
            print(text, file=sys.stderr, flush=True)

    def summary(self):
        """Return the time of each domain and its slowest case."""
        return "\n".join(
            f"{sum(s for s, _ in taken):7.1f} s  {domain}, slowest {domain}:{max(taken)[1]} "
            f"({max(taken)[0]:.1f} s)"
            for domain, taken in self.seconds.items()
        )


if __name__ == "__main__":
    sys.exit(main())
