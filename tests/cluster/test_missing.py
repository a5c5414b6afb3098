"""Something missing skips a test for a developer and fails it in continuous integration."""

import pytest

from cluster import binaries, node
from cluster.missing import REQUIRE, MissingError, give_up


def test_a_developer_sees_a_skip_that_names_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(REQUIRE, raising=False)
    with pytest.raises(pytest.skip.Exception, match="Go is not installed"):
        give_up(MissingError("Go is not installed"))


def test_continuous_integration_sees_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUIRE, "1")
    with pytest.raises(pytest.fail.Exception, match="Go is not installed"):
        give_up(MissingError("Go is not installed"))


def test_without_go_the_binaries_are_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    empty = tmp_path_factory.mktemp("empty")
    monkeypatch.setenv("XDG_CACHE_HOME", str(empty))
    monkeypatch.setenv("PATH", str(empty))
    with pytest.raises(MissingError, match="Go is not installed"):
        binaries.folder()


def test_outside_the_sandbox_no_node_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("YAIE_SANDBOX_FOLDER", raising=False)
    with pytest.raises(MissingError):
        node.check()
