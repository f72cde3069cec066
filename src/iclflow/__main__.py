"""`python -m iclflow`, the same as the command `iclflow`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
