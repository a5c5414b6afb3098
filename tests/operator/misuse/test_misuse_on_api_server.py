"""A real API server refuses at apply what would be refused later: by the operator's own parser, or
by the API server when the operator writes the children.
"""

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import pytest

from api import field_values
from api.crd_cases import CASES, Case
from api.hostile_cases import HOSTILE
from cluster.control_plane import ControlPlane
from cluster.operator_scene import installed
from yaie_api.resource import crd
from yaie_local.apiserver.admission import Admission
from yaie_operator.cluster import Kind, Object
from yaie_operator.config import OperatorConfig
from yaie_operator.model import ServedModel
from yaie_operator.resources import model_objects
from yaie_operator.watch import kinds
from yaie_operator.watch.kube_api import KubeApi, RefusedError, Request, load_configuration

__all__ = ["installed"]
DRY = (("fieldValidation", "Strict"), ("dryRun", "All"))
AT_ONCE = 2
EVERY = "YAIE_EVERY_VALUE" in os.environ
"""Whether to try every value, for some minutes, instead of a fixed sample."""
pytestmark = [
    *(pytest.mark.cluster, pytest.mark.drill, pytest.mark.timeout(1800 if EVERY else 120)),
]


class Judge:
    """Asks the API server and the local one about a spec, and then about the children of a spec
    that both accept.
    """

    def __init__(self, api: KubeApi, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._local = Admission(crd.render())
        self._turn = asyncio.Semaphore(AT_ONCE)
        self.accepted = self.refused = 0

    async def problem(self, case: Case) -> str | None:
        """What is wrong about the answers to a case; None: nothing."""
        async with self._turn:
            model = case.object(self._namespace)
            ours = self._locally(model)  # before the request, whose time would run meanwhile
            said = await self._create(kinds.INFERENCE_MODEL, model)
            if (said is None) != (ours is None):
                return f"{case.title}: API server: {said}; local: {ours}"
            if said is not None:
                self.refused += 1
                return None
            self.accepted += 1
            return await self._late(case, model)

    async def _late(self, case: Case, model: Object) -> str | None:
        """The refusal that a user would read only after the apply."""
        metadata = {**model["metadata"], "uid": "0"}
        try:
            served = ServedModel.parse({**model, "metadata": metadata})
        except ValueError as error:
            return f"{case.title}: accepted, and the operator refuses it: {error}"
        for child in model_objects(served, OperatorConfig(), deployment=None):
            said = await self._create(kinds.BY_NAME[child["kind"]], child)
            if said is not None:
                return f"{case.title}: accepted, and its {child['kind']} is refused: {said}"
        return None

    def _locally(self, model: dict[str, Any]) -> str | None:
        found = self._local.violations(self._local.default(model))
        return "; ".join(found) or None

    async def _create(self, kind: Kind, obj: Object) -> str | None:
        root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.api_version}"
        path = f"{root}/namespaces/{self._namespace}/{kind.plural}"
        try:
            await self._api.send(Request("POST", path, DRY, dict(obj)))
        except RefusedError as refusal:
            return str(refusal)
        return None


async def judged(
    installed: tuple[ControlPlane, Path], cases: list[Case]
) -> tuple[Judge, list[str]]:
    control_plane = installed[0]
    api = KubeApi(await load_configuration(str(control_plane.kubeconfig)))
    judge = Judge(api, control_plane.new_namespace("misuse"))
    try:
        found = await asyncio.gather(*map(judge.problem, cases))
    finally:
        await api.close()
    return judge, [problem for problem in found if problem]


async def test_no_case_of_the_tables_is_refused_late(
    installed: tuple[ControlPlane, Path],
) -> None:
    cases = [case for case in (*CASES, *HOSTILE) if case.before is None]
    judge, problems = await judged(installed, cases)
    assert problems == []
    assert judge.refused == sum(case.refused is not None for case in cases)


async def test_no_value_of_any_field_is_refused_late(installed: tuple[ControlPlane, Path]) -> None:
    every = [Case(title, spec) for title, spec in field_values.specs()]
    cases = every if EVERY else random.Random(0).sample(every, 400)
    judge, problems = await judged(installed, cases)
    assert problems == []
    assert judge.accepted > len(cases) / 10
    assert judge.refused > len(cases) / 2
