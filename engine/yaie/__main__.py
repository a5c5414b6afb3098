"""`python -m yaie` is the same as `yaie`."""

import sys

from yaie.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
