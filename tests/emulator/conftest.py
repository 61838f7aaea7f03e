"""The emulator's tests use the pinned hipRTC; where it may not be downloaded they are skipped, not passed."""

from __future__ import annotations

import os

import pytest

from toolkit.emulator import hiprtc


@pytest.fixture(scope="session")
def compiler() -> hiprtc.HipRTC:
    if not hiprtc.available() and os.environ.get("NEARTIE_OFFLINE"):
        pytest.skip("hipRTC is not in the cache and NEARTIE_OFFLINE forbids the download")
    return hiprtc.ensure()
