"""Install and test the wheel on the oldest and newest Python found: ``make wheels``.

The wheel is built once. Each new environment gets the wheel without extras first, and then the
extras of the command line for tables. Versions are those of constraints.txt if they have wheels
for that Python. Interpreters are searched on the path and in pyenv, or given as arguments.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUPPORTED = ("3.11", "3.12", "3.13", "3.14")
SMOKE = Path(__file__).with_name("smoke.py")


def main():
    """Build, install and run; return 1 if an environment failed."""
    pythons = sys.argv[1:] or oldest_and_newest()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", scratch]
        _run([*build, str(ROOT)], folder)
        (wheel,) = folder.glob("*.whl")
        failed = [python for python in pythons if not is_usable(python, wheel, folder)]
    return 1 if failed else 0


def oldest_and_newest():
    """Return the interpreters of the oldest and newest supported version on this machine."""
    found = {version: interpreter_of(version) for version in SUPPORTED}
    missing = [version for version, python in found.items() if python is None]
    if missing:
        print(f"wheels: not on this machine: Python {', '.join(missing)}", flush=True)
    there = [python for python in found.values() if python]
    if not there:
        sys.exit(f"wheels: no Python of {', '.join(SUPPORTED)} was found; name one as PYTHONS=...")
    return [there[0]] if len(there) == 1 else [there[0], there[-1]]


def interpreter_of(version):
    """Return a working Python of a version; pyenv also has shims for versions that do not run."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    managed = sorted(pyenv.glob(f"{version}.*/bin/python{version}"))
    for candidate in (shutil.which(f"python{version}"), *map(str, managed)):
        if candidate and _is_running(candidate):
            return candidate
    return None


def _is_running(python):
    try:
        return (
            subprocess.run(
                [python, "-c", "import venv, ensurepip"], capture_output=True, check=False
            ).returncode
            == 0
        )
    except OSError:
        return False


def is_usable(python, wheel, folder):
    """Install the wheel in a new environment and run the smoke test there."""
    began = time.monotonic()
    environment = Path(tempfile.mkdtemp(dir=folder))
    try:
        _run([python, "-m", "venv", str(environment)], folder)
        inside = environment / ("Scripts" if os.name == "nt" else "bin") / "python"
        version = _run([str(inside), "-V"], folder).strip()
        for extra in ("", "[cli,io]"):
            pinned = _installed(inside, f"{wheel}{extra}", folder)
            # -I hides the checkout and the user's packages.
            _run([str(inside), "-I", str(SMOKE), extra], folder)
            how = (
                "pinned versions"
                if pinned
                else "the newest versions: no wheels of the pinned ones"
            )
            seconds = time.monotonic() - began
            print(f"wheels: volmar{extra} on {version} works ({how}; {seconds:.0f} s)", flush=True)
    except subprocess.CalledProcessError as error:
        print(f"wheels: volmar on {python} failed:\n{error.stdout}\n{error.stderr}", flush=True)
        return False
    return True


def _installed(python, what, folder):
    """Install from wheels only; return whether the versions are the pinned ones."""
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    pip += ["--no-compile", "--only-binary", ":all:", what]
    try:
        _run([*pip, "-c", str(ROOT / "constraints.txt")], folder)
    except subprocess.CalledProcessError:
        _run(pip, folder)
        return False
    return True


def _run(command, folder):
    clean = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=folder, env=clean, capture_output=True, text=True, check=True
    )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
