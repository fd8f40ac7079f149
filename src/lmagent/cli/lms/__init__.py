"""Lms: the verbs of LM Studio's `lms` as commands of lmagent. Read `verbs` first; `shim` is the command that runs."""
