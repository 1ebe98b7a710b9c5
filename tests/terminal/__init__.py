"""What every command prints on a terminal and into a pipe, at 80 and 120 columns, kept as files in `snapshots/`."""
