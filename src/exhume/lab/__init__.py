"""Incidents made for real on this kernel: bounded in time and size, in cgroups, namespaces and files of their own."""
