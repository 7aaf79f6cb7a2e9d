"""The shared table of cases, with both clients and every journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from case_runner import CaseRun, journals_for, load_cases

CASES = load_cases()
RUNS = [
    pytest.param(case, is_async, journal, id=f"{case['name']}-{'async' if is_async else 'sync'}-{journal or 'none'}")
    for case in CASES
    for is_async in (False, True)
    for journal in journals_for(case)
]


@pytest.mark.parametrize(("case", "is_async", "journal"), RUNS)
def test_case(case: dict[str, Any], is_async: bool, journal: str | None, tmp_path: Path) -> None:
    CaseRun(case, is_async, journal, tmp_path).run()


def test_the_table_has_at_least_sixty_cases() -> None:
    assert len(CASES) >= 60
