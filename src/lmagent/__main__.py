"""`python -m lmagent`."""

from lmagent.cli.main import main

if __name__ == "__main__":
    main()
