"""Run cases in processes of their own, so that a crash or a hang is a finding and not the end."""

import multiprocessing
import os
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from multiprocessing.connection import wait

from fuzz.contract import BrokenContract, keep_contract
from fuzz.domains import draw_case

#: Seconds that a case may take.
LIMIT = 20.0
#: Seconds that a process gets to begin: it imports the package.
START = 120.0


@dataclass(frozen=True)
class Finding:
    """A case that broke the contract."""

    domain: str
    number: int
    kind: str  # "broken", "crash" or "hang"
    message: str

    def __str__(self):
        return f"{self.kind}: {self.message}\n  again: make fuzz CASE={self.domain}:{self.number}"


def run_case(domain, number):
    """Run one case in this process; return "value" or the exception's name."""
    case = draw_case(domain, number)
    try:
        return keep_contract(case)
    except BrokenContract as error:
        raise BrokenContract(f"{error}\n  case: {case.text}") from error


def run_cases(cases, *, jobs=1, tell=None):
    """Run ``(domain, number)`` pairs; return findings, and how often each outcome came."""
    waiting = list(cases)[::-1]
    findings, outcomes = [], Counter()
    context = multiprocessing.get_context("spawn")
    workers = [_Worker(context) for _ in range(min(jobs, max(len(waiting), 1)))]
    done, total = 0, len(waiting)
    try:
        while waiting or any(worker.case for worker in workers):
            for worker in workers:
                if worker.case is None and waiting:
                    worker.give(waiting.pop())
            busy = [worker for worker in workers if worker.case]
            wait([worker.pipe for worker in busy], timeout=0.2)
            for worker in busy:
                answer = worker.answer()
                if answer is None:
                    continue
                kind, message, case = answer
                done += 1
                if kind == "kept":
                    outcomes[message] += 1
                else:
                    findings.append(Finding(*case, kind, message))
                if tell:
                    tell(done, total, findings)
    finally:
        for worker in workers:
            worker.stop()
    return findings, outcomes


class _Worker:
    """A process that runs the cases it is given, begun again after a crash or a hang."""

    def __init__(self, context):
        self.context = context
        self.case = None
        self._begin()

    def _begin(self):
        self.pipe, other = self.context.Pipe()
        self.process = self.context.Process(target=_serve, args=(other,), daemon=True)
        self.process.start()
        other.close()
        self.is_new = True

    def give(self, case):
        self.case = case
        self.deadline = time.monotonic() + LIMIT + (START if self.is_new else 0.0)
        self.pipe.send(case)

    def answer(self):
        """Return what became of the case, or None while it runs."""
        case = self.case
        if self.pipe.poll():
            try:
                kind, message = self.pipe.recv()
            except (EOFError, OSError):
                self.process.join(10)
                message = f"the process ended with exit code {self.process.exitcode}"
                self._again()
                return "crash", message, case
            self.case, self.is_new = None, False
            return kind, message, case
        if time.monotonic() > self.deadline:
            self.process.kill()
            self._again()
            return "hang", f"no answer within {LIMIT:g} s", case
        return None

    def _again(self):
        self.stop()
        self.case = None
        self._begin()

    def stop(self):
        if self.process.is_alive():
            self.process.kill()
        self.process.join(10)
        self.pipe.close()


def _serve(pipe):
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    while True:
        try:
            domain, number = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            pipe.send(("kept", f"{domain}: {run_case(domain, number)}"))
        except BrokenContract as error:
            pipe.send(("broken", str(error)))
        except Exception:
            pipe.send(("broken", f"the fuzzer itself failed\n{traceback.format_exc()}"))
