"""The command line: one file per group of commands, each thin over library functions.

Whatever is slow to import is imported inside the commands, so that --help answers at once.
"""
