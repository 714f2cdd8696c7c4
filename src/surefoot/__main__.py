"""The door's handle: it can be let go of with Ctrl-C while the rest is still being imported."""

import sys


def entry() -> None:
    try:
        from surefoot.cli import main

        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # `python -m` puts the current folder there, and a stranger's numpy.py may lie in it
    entry()
