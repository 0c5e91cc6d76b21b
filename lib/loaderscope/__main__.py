"""`python -m loaderscope` is the command `loaderscope`."""

from loaderscope.cli import main

raise SystemExit(main())
