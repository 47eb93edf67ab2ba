"""`python -m longca` is the command `longca`."""

import sys

from longca.cli import main

sys.exit(main())
