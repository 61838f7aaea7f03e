"""Investigations: devices run, study fed, records written. What notebooks and the command line call."""
