"""Fixtures of several folders."""

from __future__ import annotations

import os

import pytest

from toolkit.emulator import hiprtc


@pytest.fixture(scope="session")
def compiler() -> hiprtc.HipRTC:
    """AMD's hipRTC. Where it may not be downloaded its tests are skipped, but never where changes are judged."""
    forbidden = os.environ.get("NEARTIE_OFFLINE") and not os.environ.get("CI")
    if forbidden and not hiprtc.available():
        pytest.skip("hipRTC is not in the cache and NEARTIE_OFFLINE forbids the download")
    return hiprtc.ensure()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--op-report", metavar="FILE", help="write the table of the ops' cases as JSON")
