"""The embedded dispatcher: a table of jobs with leases, for all processes that work on one workspace."""
