"""The programs of work.py, one file each: `main` takes the arguments as text."""
