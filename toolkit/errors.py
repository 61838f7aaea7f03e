"""Errors meant for a person: one sentence that says what is wrong, where, and what to do next."""

from __future__ import annotations


class ToolkitError(Exception):
    """Bad input, a missing tool or an impossible request: the command line prints it as one sentence and exits 2."""

    exit_code = 2


class CheckFailed(ToolkitError):
    """A check ran to its end and its answer is no: results differ, a gate is not met. Exits with 1."""

    exit_code = 1
