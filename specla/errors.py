"""The errors that are not bugs."""


class SpeclaError(Exception):
    """Bad input: one clear line that names what, where and what to do. Exit code 2."""


class MeasurementError(Exception):
    """A measurement that could not be finished on this machine (memory, disk, device): one clear line. Exit code 4."""
