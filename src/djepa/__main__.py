"""`python -m djepa` is `djepa`."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C while it loads prints no traceback."""
    try:
        from djepa.cli.main import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
