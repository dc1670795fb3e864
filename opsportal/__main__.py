"""`python -m opsportal`."""

from opsportal.command import main

if __name__ == "__main__":
    main()
