"""Entry point of `python -m guss`."""

import os
import sys

if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:  # python -m puts it first, where it shadows other modules
    sys.path.append(sys.path.pop(0))

from guss.cli.main import main

main()
