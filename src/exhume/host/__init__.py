"""What a host is, seen through one root: paths, cgroups, units, known programs, child processes, HTTP, quantities."""
