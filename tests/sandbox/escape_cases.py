"""All cases of the escape-and-abuse suite, by what they are after."""

from __future__ import annotations

import escape_cases_environment
import escape_cases_files
import escape_cases_git
import escape_cases_kernel
import escape_cases_network
import escape_cases_processes
import escape_cases_races
import escape_cases_resources
import escape_cases_secrets
import escape_cases_special
import escape_cases_terminal
from escape_kit import Case

CASES: dict[str, Case] = {}
for _module in (
    escape_cases_files,
    escape_cases_races,
    escape_cases_processes,
    escape_cases_kernel,
    escape_cases_network,
    escape_cases_secrets,
    escape_cases_git,
    escape_cases_terminal,
    escape_cases_resources,
    escape_cases_special,
    escape_cases_environment,
):
    for _case in _module.CASES:
        assert _case.id not in CASES, f"two cases are called {_case.id}"
        CASES[_case.id] = _case

CATEGORIES = tuple(dict.fromkeys(case.category for case in CASES.values()))
