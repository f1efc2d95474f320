"""Write the marked parts of pages and the README's figure, then build the site."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tools.docs.fill import MARK, ROOT, changed
from tools.docs.growth import draw_growth
from tools.docs.training import draw_training
from tools.docs.values import stored

from djepa.align.registry import label
from djepa.evaluate.rows import successes
from djepa.report.figures import success_bars
from djepa.studies.measures.audit import audit_figures
from djepa.studies.pages import draw_cases

BUILD, PICTURES = ROOT / "build", ROOT / "docs" / "pictures"
AUDITED = ("published",)  # pools whose audit is drawn
REMOTE = re.compile(r'<script src="https?://[^"]*"[^>]*></script>')


def draw(folder: Path) -> None:
    """Success of the methods in README's table, and in every shape and look; growth with starts;
    longer trainings; the audit of PushT. Of each the SVG and its numbers.
    """
    table = next(c for c, _ in MARK.findall((ROOT / "README.md").read_text()) if "short(" in c)
    run, *methods = re.findall(r'"([^"]+)"', table)
    panels = {}
    for case, rows in stored(run).rows.items():
        solved = successes(rows)
        panels[case] = {label(n): (int(solved[n].sum()), len(solved[n])) for n in methods}
    success_bars(folder / "success", panels)[0].unlink()  # the PNG
    for name in ("shapes-paper", "appearance-paper"):
        for stem, _ in draw_cases(stored(name), folder):
            (folder / f"{stem}.png").unlink()
    for stem, _ in audit_figures(stored(run), AUDITED, folder):
        (folder / f"{stem}.png").unlink()
    draw_growth(folder)[0].unlink()
    draw_training(folder)[0].unlink()


def site() -> int:
    """build/site/index.html: README first, nothing loaded from the network."""
    pages = BUILD / "pages"
    shutil.rmtree(BUILD, ignore_errors=True)
    shutil.copytree(ROOT / "docs", pages, ignore=shutil.ignore_patterns("results"))
    for source, name in (("README.md", "index.md"), ("CHANGELOG.md", "changelog.md")):
        (pages / name).write_text((ROOT / source).read_text().replace("](docs/", "]("))
    for page in pages.rglob("*.md"):
        text = MARK.sub(lambda match: match[2], page.read_text())
        page.write_text(text.replace("](../README.md", "](index.md"))
    shutil.copy(ROOT / "tools/docs/zensical.toml", BUILD)
    done = subprocess.run([sys.executable, "-m", "zensical", "build", "--strict"], cwd=BUILD)
    worker = f"<script>{(ROOT / 'tools/docs/worker.js').read_text()}</script>"
    for page in (BUILD / "site").rglob("*.html"):
        page.write_text(REMOTE.sub(lambda _: worker, page.read_text()))
    return done.returncode


if __name__ == "__main__":
    for page, text in changed():
        page.write_text(text)
    draw(PICTURES)
    sys.exit(site())
