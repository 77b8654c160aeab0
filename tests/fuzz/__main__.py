"""``make fuzz``: many cases with a fresh seed, or one case again."""

import argparse
import os
import secrets
import sys

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

from fuzz.domains import SHARES
from fuzz.runner import run_case, run_cases


def main():
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=2000, help="number of cases")
    parser.add_argument("--seed", type=int, help="of the run; drawn and printed by default")
    parser.add_argument("--domain", choices=SHARES, help="one domain alone")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--case", metavar="DOMAIN:NUMBER", help="run this case again, here")
    given = parser.parse_args()
    if given.case:
        domain, number = given.case.split(":")
        print(run_case(domain, int(number)))
        return 0
    seed = secrets.randbelow(10**6) if given.seed is None else given.seed
    shares = {given.domain: 1.0} if given.domain else SHARES
    cases = cases_of(seed, given.cases, shares)
    print(f"seed {seed}: {len(cases)} cases of {', '.join(shares)}", flush=True)
    findings, outcomes = run_cases(cases, jobs=given.jobs, tell=_tell)
    for finding in findings:
        print(f"\n{finding}")
    print()
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:7d}  {outcome}")
    kinds = [finding.kind for finding in findings]
    print(
        f"{len(cases)} cases, seed {seed}: {kinds.count('crash')} crashes, "
        f"{kinds.count('hang')} hangs, {kinds.count('broken')} broken contracts"
    )
    return 1 if findings else 0


def cases_of(seed, n_cases, shares=SHARES):
    """Return ``(domain, number)`` pairs of a run; runs with different seeds share none."""
    total = sum(shares.values())
    return [
        (domain, seed * 10**6 + i)
        for domain, share in shares.items()
        for i in range(round(n_cases * share / total))
    ]


def _tell(done, total, findings):
    if done % 500 == 0:
        print(f"{done} of {total}, {len(findings)} findings", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
