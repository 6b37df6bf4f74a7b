"""Rewrite the generated parts of README.md and docs/ from stored records and from the source.

    python docs/generate.py            # make docs
    python docs/generate.py --check    # print what is stale and exit with 1; make check

A part is the text between `<!-- begin NAME -->` and `<!-- end NAME -->`; `docs/generator/` has one function per NAME.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from docs.generator.pages import main

if __name__ == "__main__":
    sys.exit(main())
