"""The door's handle: it can be let go of with Ctrl-C while the rest is still being imported."""

import sys


def entry() -> None:
    try:
        from surefoot.cli import main

        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    entry()
