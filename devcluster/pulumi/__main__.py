"""`python -m devcluster.pulumi pulumi|kubectl ARGUMENTS`: what the commands in bin/ run."""

import sys

from devcluster.pulumi import launcher

if __name__ == "__main__":
    sys.exit(launcher.main(sys.argv[1], sys.argv[2:]))
