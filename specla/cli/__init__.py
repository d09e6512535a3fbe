"""The command line: one file per group of commands, no logic."""
