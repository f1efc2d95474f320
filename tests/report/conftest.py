"""A real browser for pages."""

import os
import shutil

import pytest


@pytest.fixture(scope="session")
def browser():
    """Debian's Chromium, without a window."""
    api = pytest.importorskip(
        "playwright.sync_api", reason="no playwright: `make lint` and `make browser`"
    )
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if not found:
        pytest.skip("no Chromium: `make browser` installs it")
    rights = ["--no-sandbox"] if os.geteuid() == 0 else []
    with api.sync_playwright() as play:
        opened = play.chromium.launch(
            executable_path=found, args=[*rights, "--disable-dev-shm-usage"]
        )
        yield opened
        opened.close()
