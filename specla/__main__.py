"""`python -m specla` is `specla`."""

from specla.cli.main import main

if __name__ == "__main__":
    main()
