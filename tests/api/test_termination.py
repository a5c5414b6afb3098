import logging
from pathlib import Path

import pytest

from yaie_api import termination


def test_a_sentence_goes_in_one_line_where_the_environment_says(tmp_path: Path) -> None:
    file = tmp_path / "log"
    termination.leave("no such\n  model", {"YAIE_TERMINATION_LOG": str(file)})
    assert file.read_text() == "no such model"
    termination.leave("é" * 5000, {"YAIE_TERMINATION_LOG": str(file)})
    assert len(file.read_bytes()) < 4096


def test_outside_a_pod_nothing_is_written(tmp_path: Path) -> None:
    termination.leave("no such model", {})
    termination.leave("no such model", {"YAIE_TERMINATION_LOG": ""})


def test_a_file_that_cannot_be_written_does_not_hide_why_the_process_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        termination.leave("no such model", {"YAIE_TERMINATION_LOG": str(tmp_path)})
    assert [record.message for record in caplog.records] == ["termination message is lost"]
