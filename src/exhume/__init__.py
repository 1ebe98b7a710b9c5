"""exhume digs out why a Linux node starves, and puts it right."""

__version__ = "0.1.0.dev0"
