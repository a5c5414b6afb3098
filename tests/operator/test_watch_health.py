"""When the watches can be relied on."""

from yaie_operator.watch.watch_health import ABANDONED_S, DEAF_S, WatchHealth


def health(*paths: str) -> tuple[WatchHealth, list[float]]:
    now = [100.0]
    return WatchHealth(paths, clock=lambda: now[0]), now


def test_a_watch_that_was_never_answered_is_no_good() -> None:
    seen, _ = health("/a")
    assert seen.trouble() == "/a: not watched yet"
    seen.answered("/a", 200, is_watch=True)
    assert seen.trouble() == ""


def test_a_list_that_succeeds_does_not_make_a_watch() -> None:
    seen, _ = health("/a")
    seen.answered("/a", 200, is_watch=False)
    assert seen.trouble()


def test_a_refused_list_and_a_lost_connection_are_trouble_until_the_next_watch() -> None:
    seen, _ = health("/a", "/b")
    for path in ("/a", "/b"):
        seen.answered(path, 200, is_watch=True)
    seen.answered("/a", 403, is_watch=False)
    seen.failed("/b", "reset")
    assert seen.trouble() == "/a: HTTP 403, /b: reset"
    assert seen.trouble(but=["/a"]) == "/b: reset"
    seen.answered("/a", 200, is_watch=True)
    seen.answered("/b", 200, is_watch=True)
    assert seen.trouble() == ""


def test_a_watch_without_an_answer_grows_old_and_deaf() -> None:
    seen, now = health("/a", "/b")
    seen.answered("/a", 200, is_watch=True)
    now[0] += DEAF_S
    seen.answered("/b", 200, is_watch=True)
    assert not seen.is_deaf
    now[0] += 1.0
    assert seen.is_deaf
    assert seen.trouble() == "/a: no answer"
    assert seen.age_s == DEAF_S + 1.0


def test_a_failure_is_a_sign_of_life() -> None:
    """Somebody still asks: a restart would not help."""
    seen, now = health("/a")
    now[0] += DEAF_S + 1.0
    seen.failed("/a", "refused")
    assert not seen.is_deaf
    assert seen.trouble() == "/a: refused"


def test_after_a_refusal_the_next_request_must_follow_sooner() -> None:
    seen, now = health("/a")
    seen.answered("/a", 404, is_watch=True)
    now[0] += ABANDONED_S
    assert not seen.is_deaf
    now[0] += 1.0
    assert seen.is_deaf
    seen.restarted()
    assert not seen.is_deaf
    assert seen.trouble() == "/a: HTTP 404"


def test_other_paths_do_not_count() -> None:
    seen, _ = health()
    seen.answered("/api/v1/namespaces", 403, is_watch=True)
    assert seen.trouble() == ""
