"""``python -m terafactor``, the same as ``terafactor``."""

from terafactor.cli import main

if __name__ == "__main__":
    main()
