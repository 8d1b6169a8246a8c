"""What fires a dream: each trigger at its threshold, and none where nothing is known."""

from __future__ import annotations

from typing import Any

import pytest

from shared_core.errors import ConfigError
from shared_core.scheduling import SchedulerConfig, TriggerConfig, due

QUIET: dict[str, Any] = {"new_pages": 0, "confidences": [], "seconds": None}


@pytest.mark.parametrize(
    ("happened", "fired"),
    [
        ({}, []),
        ({"new_pages": 19}, []),
        ({"new_pages": 20}, ["new_pages"]),
        ({"confidences": [0.1, 0.1]}, []),
        ({"confidences": [0.9, 0.1, 0.1, 0.1]}, ["confidence"]),
        ({"confidences": [0.1, 0.1, 0.1, 0.9]}, []),
        ({"confidences": [0.3, 0.3, 0.3]}, []),
        ({"seconds": 86_399.0}, []),
        ({"seconds": 86_400.0}, ["elapsed"]),
        (
            {"new_pages": 20, "confidences": [0.0] * 3, "seconds": 9e9},
            ["new_pages", "confidence", "elapsed"],
        ),
    ],
)
def test_each_trigger_fires_at_its_threshold(happened: dict[str, Any], fired: list[str]) -> None:
    assert due(TriggerConfig(), **{**QUIET, **happened}) == fired


def test_none_switches_a_trigger_off() -> None:
    off = TriggerConfig(new_pages=None, min_confidence=None, max_seconds=None)
    assert due(off, new_pages=10**6, confidences=[0.0] * 3, seconds=1e12) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"new_pages": 0},
        {"new_pages": True},
        {"min_confidence": float("nan")},
        {"max_seconds": -1.0},
        {"max_seconds": float("inf")},
        {"confidence_window": 0},
        {"confidence_window": 1.5},
        {"confidence_window": None},
    ],
)
def test_thresholds_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(wrong))}="):
        TriggerConfig(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "nap"},
        {"debounce": -0.1},
        {"max_backoff": float("inf")},
        {"backoff": "1"},
        {"retries": -1},
        {"retries": 1.5},
        {"history": 0},
        {"batch": True},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(wrong))}="):
        SchedulerConfig(**wrong)


def test_the_wait_doubles_up_to_its_limit() -> None:
    config = SchedulerConfig(backoff=0.5, max_backoff=3.0)
    assert [config.delay(failures) for failures in (1, 2, 3, 4, 5000)] == [0.5, 1.0, 2.0, 3.0, 3.0]
