"""`python tests/xla_flags.py FLAG…` prints the flags that the installed jaxlib knows, and names the others on stderr.

XLA aborts a process that meets an unknown flag in XLA_FLAGS, and its versions differ in their flags.
"""

import os
import re
import subprocess
import sys

TRY = "import jax; jax.devices('cpu')"


def divide(flags):
    """Those that XLA knows and those that it does not, as tried in another process."""
    known, unknown = list(flags), []
    while True:
        environment = os.environ | {"XLA_FLAGS": " ".join(known), "JAX_PLATFORMS": "cpu"}
        done = subprocess.run([sys.executable, "-c", TRY], env=environment, capture_output=True, text=True)
        if done.returncode == 0:
            return known, unknown
        named = " ".join(re.findall(r"Unknown flags? in XLA_FLAGS: (.*)", done.stderr)).split()
        if not set(named) & set(known):
            sys.exit(f"JAX does not start with XLA_FLAGS={' '.join(known)}:\n{done.stderr}")
        unknown += [flag for flag in known if flag in named]
        known = [flag for flag in known if flag not in named]


if __name__ == "__main__":
    known, unknown = divide(sys.argv[1:])
    if unknown:
        print(f"this jaxlib does not know {' '.join(unknown)}: compiling takes longer", file=sys.stderr)
    print(" ".join(known))
