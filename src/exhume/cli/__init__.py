"""The command line, one command a file: parse, call, print. What a command needs is imported when it runs, not before."""
