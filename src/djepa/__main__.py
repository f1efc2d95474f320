"""`python -m djepa` is `djepa`."""

from djepa.cli.main import main

if __name__ == "__main__":
    main()
