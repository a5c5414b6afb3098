"""What users of such platforms complain about, and the test that holds each of them here.

A complaint is answered by tests, or by the reason why it does not apply or is not met.
"""

import ast
from dataclasses import dataclass
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]


@dataclass(frozen=True)
class Complaint:
    """`tests`: FILE::NAME below tests/. `reason`: what is not met or cannot happen, and why."""

    what: str
    tests: tuple[str, ...] = ()
    reason: str = ""


COMPLAINTS = (
    Complaint(
        "models in one namespace only",
        (
            (
                "operator/test_manager.py::"
                "test_a_fleet_that_is_as_it_should_be_is_looked_at_without_a_write"
            ),
            (
                "operator/hostile/test_admission.py::"
                "test_a_watched_namespace_that_does_not_exist_yet_holds_up_no_other"
            ),
        ),
    ),
    Complaint(
        "stuck without a word when storage is missing",
        ("operator/test_status.py::test_a_pod_that_is_not_ready_says_why_and_what_to_do",),
    ),
    Complaint(
        "models are lost after scaling",
        (
            "operator/hostile/test_races.py::test_an_edit_during_any_write_is_acted_on_in_time",
            "operator/autoscaling/test_autoscaler.py::test_zero_and_back",
        ),
    ),
    Complaint(
        "one model on several types of GPU",
        reason="One InferenceModel chooses one type (spec.resources.gpu.type). Two of them cannot "
        "serve one name: the younger says NameTaken.",
    ),
    Complaint(
        "weights from OCI images",
        (
            "operator/test_weights.py::test_an_image_is_mounted_by_the_nodes",
            "operator/test_weights.py::test_a_cluster_without_image_volumes_is_told",
            (
                "e2e/weights/test_image_volume.py::"
                "test_an_image_is_mounted_or_the_status_names_the_runtime_that_cannot"
            ),
        ),
    ),
    Complaint(
        "terminating pods still get requests",
        (
            (
                "router/discovery/test_router_watch.py::"
                "test_an_endpoint_that_terminates_or_is_not_ready_gets_no_request"
            ),
            "router/upstream/test_router_proxy.py::test_draining_closes_the_port_and_finishes_streams",
        ),
    ),
    Complaint(
        "the router falls over at a thousand connections",
        (
            (
                "router/downstream/test_many_streams.py::"
                "test_a_soft_limit_of_1024_open_files_does_not_bound_streams"
            ),
        ),
        "Its speed is measured, not tested: bench/relay.py holds 1,000 streams through one "
        "router, and bench/results/2026-11-23-relay.md has what that adds (p99 0.21 ms on a quiet "
        "machine, 67 ms on two busy cores).",
    ),
    Complaint(
        "the router's prefix index eats memory",
        (
            "router/prefixes/test_holdings.py::test_an_evicted_key_is_forgotten",
            (
                "router/prefixes/test_holdings.py::"
                "test_an_engine_that_is_gone_leaves_its_place_to_the_next"
            ),
            "router/prefixes/test_holdings.py::test_an_engine_that_says_too_much_is_forgotten",
            "router/prefixes/test_holdings.py::test_guesses_are_bounded",
            "router/prefixes/test_accounts.py::test_branches_are_bounded_and_keep_the_last",
        ),
    ),
    Complaint(
        "a common system prompt sends everything to one engine",
        (
            (
                "router/upstream/test_router_proxy.py::"
                "test_one_popular_prefix_does_not_overload_its_home"
            ),
            (
                "router/balancing/test_affinity.py::"
                "test_spilled_keys_of_one_home_spread_over_the_others"
            ),
        ),
    ),
    Complaint(
        "a model at zero is not found, and nothing wakes it",
        (
            (
                "router/balancing/test_router_holding.py::"
                "test_requests_wait_for_the_first_engine_and_are_answered"
            ),
            "operator/autoscaling/test_decision.py::test_from_zero_at_once_for_all_that_wait",
        ),
    ),
    Complaint(
        "no keys and quotas per user",
        (
            (
                "router/downstream/test_router_access.py::"
                "test_a_wrong_key_is_refused_and_each_right_one_is_served"
            ),
            (
                "router/tenants/test_tenant_limits.py::"
                "test_requests_beyond_the_limit_are_429_in_openai_s_words_and_others_are_served"
            ),
            "router/tenants/test_tenant_limits.py::test_tokens_are_those_that_the_engine_counted",
            "router/tenants/test_tenant_limits.py::test_ready_routers_share_the_limits",
        ),
    ),
    Complaint(
        "rollouts wait for ever when every GPU is taken",
        (
            "operator/rollout/test_strategy.py::test_a_new_engine_gets_thirty_seconds_to_find_room",
            "operator/rollout/test_strategy.py::test_a_quota_that_is_used_up_is_no_room_too",
        ),
    ),
    Complaint(
        "a status that says nothing, and no events",
        (
            "operator/test_reasons.py::test_each_message_that_is_no_good_news_ends_with_what_to_do",
            "operator/hostile/test_admission.py::test_a_quota_of_zero_is_told_and_tried_seldom",
        ),
    ),
    Complaint(
        "several routers lose the affinity",
        (
            (
                "router/balancing/test_affinity.py::"
                "test_the_ring_is_the_same_in_every_process_and_version"
            ),
            "router/upstream/test_router_stored.py::test_another_router_finds_them_too",
        ),
    ),
    Complaint(
        "a chart that needs other things installed first, or is broken",
        (
            (
                "charts/test_chart_on_api_server.py::"
                "test_after_an_uninstall_another_namespace_takes_the_kept_type_over"
            ),
            "e2e/quickstart/test_quickstart.py::test_a_model_streams_its_answer_through_the_router",
        ),
    ),
)


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


@pytest.mark.parametrize("complaint", COMPLAINTS, ids=lambda complaint: complaint.what)
def test_each_complaint_has_a_test_or_a_reason(complaint: Complaint) -> None:
    assert complaint.tests or complaint.reason
    for test in complaint.tests:
        file, _, name = test.partition("::")
        assert name in functions(TESTS / file), f"{test} does not exist"
