"""Units as systemd reads them, from a tree that does not run. Nothing of it is ever executed."""
