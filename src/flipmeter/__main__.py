"""`python -m flipmeter`: the command line."""

from flipmeter.cli import main

if __name__ == "__main__":
    main()
