"""Generated parts of README.md and docs/*.md, and the site. Run: make docs."""
