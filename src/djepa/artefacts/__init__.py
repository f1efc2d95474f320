"""Every folder that is written or read: one manifest, strict records, hashes, locks.

FOLDER/
  manifest.json    format and version, SHA-256 and size of every file, what it is (`about`), and the
                   hashes of what it was made from; written last
  ...              the files themselves

While a folder is written there is no manifest but `begun.json`, which says whose it is, and
`journal.jsonl`, one checked line per finished piece of work. What a line lists is kept on a restart
if it is still what was written; everything else is made again.
"""
