"""What the emulator says when it cannot go on: one sentence, and the exit status that the command line returns."""

from __future__ import annotations


class EmulatorError(Exception):
    """Bad input, a missing tool or an impossible request."""

    exit_code = 2


class CompileError(EmulatorError):
    """hipRTC refused a source; the message holds its log."""

    exit_code = 1
