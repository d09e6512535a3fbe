"""The error that a user's input can cause."""


class SpeclaError(Exception):
    """bad input: one clear line, exit code 2"""
