"""`python -m djepa` is `djepa`."""

import sys


def main() -> None:
    """The command line; Ctrl-C while it loads is no traceback."""
    try:
        from djepa.cli.main import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
