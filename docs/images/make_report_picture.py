"""Make docs/images/report.png: the report of the README's command, as a browser shows it.

Run it from the root of the repository as ``python docs/images/make_report_picture.py``; it needs
Chromium, and volmar with its extras.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking "
    "--hide-scrollbars --virtual-time-budget=8000 --window-size=1200,1220"
)


def main():
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("no chromium found: install it first")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        command = [sys.executable, "-m", "volmar", "cluster", "iris", "--report", str(page)]
        subprocess.run(command, check=True)
        picture = HERE / "report.png"
        flags = [*FLAGS.split(), f"--user-data-dir={folder}/profile", f"--screenshot={picture}"]
        subprocess.run([browser, *flags, page.as_uri()], check=True, capture_output=True)
    sys.stdout.write(f"wrote {picture}\n")


if __name__ == "__main__":
    main()
