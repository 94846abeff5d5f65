"""`python -m wqa` is the same as `wqa`."""

import sys

from wqa.cli import main

sys.exit(main())
