"""Make docs/images/report.png and methods.png: the files of `volmar demo`, as a user sees them.

Run it from the root of the repository as ``python docs/images/make_pictures.py``; it needs
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
        subprocess.run([sys.executable, "-m", "volmar", "demo"], check=True, cwd=folder)
        demo = Path(folder) / "demo"
        shutil.copy(demo / "methods.png", HERE / "methods.png")
        picture = f"--screenshot={HERE / 'report.png'}"
        flags = [*FLAGS.split(), f"--user-data-dir={folder}/profile", picture]
        page = (demo / "report.html").as_uri()
        subprocess.run([browser, *flags, page], check=True, capture_output=True)
    sys.stdout.write(f"wrote {HERE / 'report.png'} and {HERE / 'methods.png'}\n")


if __name__ == "__main__":
    main()
