"""How a fleet starts a Ray of its own."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shared_core.errors import FleetError
from shared_core.fleet import ray_pool
from shared_core.fleet.ray_pool import connected

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None,
    reason="RAY IS MISSING: install the extra `ray` to test the fleet",
)


def test_a_ray_that_was_imported_before_is_refused_at_once() -> None:
    program = """
import ray
from shared_core.fleet.ray_pool import connected
with connected("local", 1):
    pass
"""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False, env=clean
    )
    assert "FleetError: ray was imported before the fleet could give it a token" in done.stderr


@pytest.mark.slow
def test_ray_is_started_once_more_where_it_was_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    with connected("local", 1) as ray:  # imports it
        pass
    real, asked = ray.init, []

    def slow(**options: Any) -> Any:
        asked.append(options["_temp_dir"])
        if len(asked) == 1:
            raise RuntimeError("The current node timed out during startup")
        return real(**options)

    monkeypatch.setattr(ray, "init", slow)
    with connected("local", 1):
        assert ray.is_initialized()
        assert not Path(asked[0]).exists()
    assert len(set(asked)) == 2
    assert not Path(asked[1]).exists()
    asked.clear()
    monkeypatch.setattr(ray_pool, "START_TRIES", 1)
    with pytest.raises(FleetError, match="timed out during startup"), connected("local", 1):
        pass
    assert not ray.is_initialized()
