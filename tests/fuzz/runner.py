"""Run cases in separate processes, so that a crash or a hang is a finding and not the end."""

import multiprocessing
import os
import time
import traceback
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait

from fuzz.contract import BrokenContract, keep_contract
from fuzz.domains import draw_case

#: Maximum processor time of a case in seconds. The limit on the wall time is three times as long,
#: since other processes may keep the machine busy.
LIMIT = 20.0
#: Maximum seconds for the start of a process, which imports the package.
START = 120.0
#: Maximum bytes of memory of a process.
MEMORY = 8 * 2**30
#: Processes run on one thread, since there is one process per core.
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS")


@dataclass(frozen=True)
class Finding:
    """A case that broke the contract."""

    domain: str
    number: int
    kind: str  # "broken", "crash" or "hang"
    message: str

    def __str__(self):
        return f"{self.kind}: {self.message}\n  again: make fuzz CASE={self.domain}:{self.number}"


def run_case(domain, number, tell=lambda text: None):
    """Run one case in this process; return "value" or the exception's name.

    `tell` is called with the text of the case before it runs.
    """
    case = draw_case(domain, number)
    tell(case.text)
    try:
        return keep_contract(case)
    except BrokenContract as error:
        raise BrokenContract(f"{error}\n{_indented(case.text)}") from error


def _indented(text):
    return "  case:\n" + "\n".join(f"    {line}" for line in text.splitlines())


def run_cases(cases, *, jobs=1, tell=None):
    """Run ``(domain, number)`` pairs; return findings, and the number of cases with each outcome.

    `tell` is called after each case with its domain, number and seconds, and all findings.
    """
    waiting = list(cases)[::-1]
    findings, outcomes = [], Counter()
    context = multiprocessing.get_context("spawn")
    workers = [_Worker(context) for _ in range(min(jobs, max(len(waiting), 1)))]
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
                if kind == "kept":
                    outcomes[message] += 1
                else:
                    findings.append(Finding(*case, kind, message))
                if tell:
                    tell(*case, worker.seconds, findings)
    finally:
        for worker in workers:
            worker.stop()
    return findings, outcomes


class _Worker:
    """A process that runs cases, restarted after a crash or a hang."""

    def __init__(self, context):
        self.context = context
        self.case = None
        self._begin()

    def _begin(self):
        self.pipe, other = self.context.Pipe()
        self.process = self.context.Process(target=_serve, args=(other,), daemon=True)
        with _environment(ONE_THREAD):
            self.process.start()
        other.close()
        self.is_new = True

    def give(self, case):
        self.case, self.text = case, ""
        self.allowed = LIMIT + (START if self.is_new else 0.0)
        self.began, self.used = time.monotonic(), _processor_seconds(self.process.pid)
        self.pipe.send(case)

    def answer(self):
        """Return the outcome of the case, or None while it runs."""
        case = self.case
        self.seconds = time.monotonic() - self.began
        if self.pipe.poll():
            try:
                kind, message = self.pipe.recv()
            except (EOFError, OSError):
                self.process.join(10)
                message = f"the process ended with exit code {self.process.exitcode}"
                self._again()
                return "crash", f"{message}\n{_indented(self.text)}", case
            if kind == "text":
                self.text = message
                return None
            self.case, self.is_new = None, False
            return kind, message, case
        if self._is_late():
            self.process.kill()
            self._again()
            return "hang", f"no answer within {LIMIT:g} s\n{_indented(self.text)}", case
        return None

    def _is_late(self):
        if self.seconds <= self.allowed:
            return False
        used = _processor_seconds(self.process.pid)
        return used is None or used - self.used > self.allowed or self.seconds > 3 * self.allowed

    def _again(self):
        self.stop()
        self.case = None
        self._begin()

    def stop(self):
        if self.process.is_alive():
            self.process.kill()
        self.process.join(10)
        self.pipe.close()


@contextmanager
def _environment(names):
    """Set variables to 1 for processes that are started inside this context."""
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _processor_seconds(pid):
    """Return the processor time of a process, or None if the system does not report it."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _serve(pipe):
    _limit_memory()
    while True:
        try:
            domain, number = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            outcome = run_case(domain, number, lambda text: pipe.send(("text", text)))
            pipe.send(("kept", f"{domain}: {outcome}"))
        except BrokenContract as error:
            pipe.send(("broken", str(error)))
        except Exception:
            pipe.send(("broken", f"the fuzzer itself failed\n{traceback.format_exc()}"))


def _limit_memory():
    """Limit the memory, so that an absurd allocation fails and the machine does not."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = MEMORY if hard == resource.RLIM_INFINITY else min(MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
