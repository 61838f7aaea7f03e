"""A table of what the ops' cases showed, at the end of every run of them; ``--op-report FILE`` writes it as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


def rows(reporter: Any) -> list[dict[str, Any]]:
    """What the tests recorded, from every worker, in order of op, dtype and device."""
    found = [
        value | {"passed": report.passed}
        for reports in reporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, value in getattr(report, "user_properties", ())
        if name == "op_case_row"
    ]
    return sorted(found, key=lambda row: (row["op"], row["dtype"], row["device"]))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    table = rows(terminalreporter)
    if not table:
        return
    terminalreporter.section("ops against the reference (1 = all that the tolerance allows)")
    for row in table:
        terminalreporter.write_line(
            f"{row['op']:18} {row['dtype']:9} {row['device']:11} {row['cases']:3} cases  worst {row['worst']:.3f}  "
            f"{'bits of cpu' if row['same_bits_as_cpu'] else 'OTHER BITS'}  {', '.join(row['providers'])}"
        )
    chosen = config.getoption("--op-report")
    if chosen:
        Path(chosen).write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
