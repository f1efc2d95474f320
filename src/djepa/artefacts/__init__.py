"""The format of all folders that are written or read: manifest, strict records, hashes, locks.

FOLDER/
  manifest.json    format and version, SHA-256 and size of every file, a description (`about`), and
                   the hashes of its inputs; written last
  ...              the files themselves

While a folder is written there is no manifest but `begun.json`, which identifies the writer, and
`journal.jsonl`, one checked line per finished piece of work. On a restart, files listed there are
kept if they are unchanged; everything else is made again.
"""
