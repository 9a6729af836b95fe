"""A real browser for pages: headless Chromium, where one is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


def dumped(address: str, folder: Path, width: int = 1000, patience: int = 4000) -> str:
    """The document at `address` as a browser has it once its scripts have run, and what they
    complained of; `patience` is in milliseconds of the page's own clock. Skips without one."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip(f"no browser here: none of {', '.join(BROWSERS)}")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    options += ["--enable-logging=stderr", f"--virtual-time-budget={patience}"]
    options += [f"--user-data-dir={folder / 'profile'}", f"--window-size={width},2400"]
    command = [browser, *options, "--dump-dom", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return "\n".join([done.stdout, *console])
