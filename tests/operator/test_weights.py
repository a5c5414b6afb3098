"""Weights in a claim: when a Job is written, when engines are, and what the status says."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fakes.fake_cluster import FakeCluster, inference_model
from fakes.local_double import LocalDouble
from fakes.local_objects import owner
from yaie_api import names
from yaie_api.download.messages import Progress, Result, parse_progress
from yaie_operator.cluster import Object
from yaie_operator.config import OperatorConfig
from yaie_operator.model import ServedModel
from yaie_operator.monitoring.metrics import Metrics
from yaie_operator.reconcile.observe import Ref, Store
from yaie_operator.reconcile.reconciler import Reconciler
from yaie_operator.resources.engine import hash_of
from yaie_operator.watch import kinds

COMMIT = "5f" * 20
FOLDER = f"hub/models--org--tiny/snapshots/{COMMIT}"
AGAIN = "It is tried again by itself and goes on where it was; wait, or correct what it names."
RESULT = Result(FOLDER, COMMIT, 6_300_000)
CLAIM = Ref("PersistentVolumeClaim", "ns", "demo-weights")
JOB = Ref("Job", "ns", "demo-weights")
DEPLOYMENT = Ref("Deployment", "ns", "demo")
MODEL = Ref(names.KIND, "ns", "demo")


class World:
    """A cluster with one cached model, and a reconciler. `progress`: what a download answers."""

    def __init__(self, cluster: Any, **spec: Any) -> None:
        self.cluster = cluster
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.progress: Progress | None = None
        self.wait_s: float | None = None
        self.put(**spec)
        self.restart()

    def put(self, source: str = "hf://org/tiny", **spec: Any) -> None:
        cache = spec.pop("cache", {"mode": "pvc", "size": "20Gi"})
        model = {"source": source, **spec.pop("model", {})}
        self.cluster.put(inference_model(model=model, cache=cache, **spec))

    def restart(self) -> None:
        async def progress(_pod: Object) -> Progress | None:
            return self.progress

        self.store = Store()
        self.reconciler = Reconciler(
            self.cluster, self.store, OperatorConfig(), lambda: self.now,
            metrics=Metrics(), wake=lambda _key: None, progress=progress,
        )  # fmt: skip

    async def settle(self) -> list[tuple[str, str]]:
        """A pass over the model; the writes that it made."""
        self.cluster.writes.clear()
        for kind in (*kinds.WATCHED, kinds.INFERENCE_MODEL):
            since = self.store.mark()
            self.store.replace(kind, await self.cluster.list(kind), since=since)
        self.wait_s = await self.reconciler.reconcile("model/ns/demo")
        return list(self.cluster.writes)

    async def begin(self) -> None:
        """Until the Job exists."""
        await self.settle()
        await self.settle()

    def pod(self, name: str = "demo-weights-abcde", phase: str = "Running", **status: Any) -> None:
        """Play the Job controller and the kubelet. `stranger`: the pod is not the Job's."""
        job = self.get(JOB)
        stranger = status.pop("stranger", False)
        ended = status.pop("ended", None)
        container: dict[str, Any] = {"name": "download", "state": {"running": {}}}
        if ended is not None and phase == "Running":
            container |= {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 1}
            container["lastState"] = {"terminated": ended}
        elif ended is not None:
            container["state"] = {"terminated": ended}
        scheduled = {"type": "PodScheduled", "status": "True"}
        self.cluster.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": "ns",
                    "labels": job["spec"]["template"]["metadata"]["labels"],
                    "ownerReferences": [] if stranger else [owner(job)],
                },
                "spec": job["spec"]["template"]["spec"],
            }
        )
        told = {"phase": phase, "conditions": [scheduled], "containerStatuses": [container]}
        self.cluster.set_status(Ref("Pod", "ns", name), told | status)

    def finish(self, result: Result = RESULT) -> None:
        self.pod(phase="Succeeded", ended={"exitCode": 0, "message": result.text()})
        self.complete()

    def complete(self) -> None:
        since = self.now.strftime("%Y-%m-%dT%H:%M:%SZ")
        done = {"type": "Complete", "status": "True", "lastTransitionTime": since}
        self.cluster.set_status(JOB, {"succeeded": 1, "conditions": [done]})

    def get(self, ref: Ref) -> Any:
        return self.cluster.objects[ref]

    @property
    def status(self) -> Any:
        return self.get(MODEL)["status"]

    def condition(self, kind: str = "CacheReady") -> tuple[str, str, str]:
        found = next(c for c in self.status["conditions"] if c["type"] == kind)
        return found["status"], found["reason"], found["message"]

    def engine(self) -> Any:
        return self.get(DEPLOYMENT)["spec"]["template"]["spec"]

    def has(self, ref: Ref) -> bool:
        return ref in self.cluster.objects


@pytest.fixture(params=["fake", "local"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    local = LocalDouble(tmp_path) if request.param == "local" else None
    yield World(local or FakeCluster())
    if local is not None:
        local.close()


@pytest.fixture
def fake_world() -> World:
    return World(FakeCluster())


def env_of(container: Any) -> dict[str, Any]:
    return {e["name"]: e.get("value", e.get("valueFrom")) for e in container["env"]}


async def test_a_claim_then_a_job_are_written_and_no_engine_yet(world: World) -> None:
    await world.settle()
    assert world.get(CLAIM)["spec"] | {"volumeName": ""} == {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "20Gi"}},
        "volumeName": "",
    }
    await world.settle()
    (download,) = world.get(JOB)["spec"]["template"]["spec"]["containers"]
    assert download["command"] == ["yaie", "pull"]
    assert download["args"][:3] == ["hf://org/tiny", "--into", f"$({names.ENV_MODEL_FOLDER})"]
    assert not world.has(DEPLOYMENT)
    assert world.condition() == (
        "False", "Downloading", "The Job demo-weights is being started; wait.",
    )  # fmt: skip
    assert world.status["phase"] == "Downloading"
    assert world.wait_s == OperatorConfig().progress_s
    assert await world.settle() == []


async def test_the_status_says_how_far_the_download_is(world: World) -> None:
    await world.begin()
    world.pod()
    world.progress = Progress(1_200_000_000, 3_400_000_000, 56_100_000, 39)
    await world.settle()
    cache = {k: v for k, v in world.status["cache"].items() if k != "key"}
    assert cache == {
        "bytes": 1_200_000_000, "totalBytes": 3_400_000_000,
        "bytesPerSecond": 56_100_000, "etaSeconds": 39,
    }  # fmt: skip
    words = "1.20 GB of 3.40 GB (35 %), 56.1 MB/s, 39 s left"
    assert world.condition()[2] == f"hf://org/tiny is being downloaded: {words}; wait."
    assert world.condition("Ready")[2] == world.condition()[2]
    assert await world.settle() == []  # nothing moved
    world.progress = None  # the pod does not answer any more
    await world.settle()
    assert "bytesPerSecond" not in world.status["cache"]
    assert world.status["cache"]["bytes"] == 1_200_000_000


async def test_engines_mount_the_stored_weights_and_need_neither_hub_nor_token(
    fake_world: World,
) -> None:
    world = fake_world
    world.put(model={"secretRef": {"name": "hub"}})
    await world.begin()
    download = world.get(JOB)["spec"]["template"]["spec"]["containers"][0]
    token = {"secretKeyRef": {"name": "hub", "key": "token"}}
    assert env_of(download)["HF_TOKEN"] == token
    world.pod()
    world.finish()
    await world.settle()
    (engine,) = world.engine()["containers"]
    assert engine["args"][0] == f"$({names.ENV_MODEL_FOLDER})/{FOLDER}"
    assert env_of(engine)["HF_HUB_OFFLINE"] == "1"
    assert "HF_TOKEN" not in env_of(engine)
    mounted = next(m for m in engine["volumeMounts"] if m["name"] == "model")
    assert mounted == {"name": "model", "mountPath": "/models", "readOnly": True}
    claim = {"claimName": "demo-weights", "readOnly": True}
    assert {"name": "model", "persistentVolumeClaim": claim} in world.engine()["volumes"]
    assert world.condition()[:2] == ("True", "Stored")
    assert world.status["model"] == {"resolvedRevision": COMMIT}
    assert world.status["cache"]["folder"] == FOLDER
    assert world.wait_s is None
    assert await world.settle() == []


async def test_what_is_stored_is_remembered_without_the_job_and_its_pod(world: World) -> None:
    await world.begin()
    world.finish()
    await world.settle()
    before = world.get(DEPLOYMENT)["metadata"]["resourceVersion"]
    world.cluster.remove(JOB)
    assert not world.has(Ref("Pod", "ns", "demo-weights-abcde"))
    world.restart()
    assert await world.settle() == []
    assert world.get(DEPLOYMENT)["metadata"]["resourceVersion"] == before
    assert world.condition()[1] == "Stored"


async def test_a_pod_that_is_not_the_jobs_tells_nothing(world: World) -> None:
    await world.begin()
    world.pod(
        phase="Succeeded", stranger=True, ended={"exitCode": 0, "message": RESULT.text()},
    )  # fmt: skip
    assert await world.settle() == []
    assert not world.has(DEPLOYMENT)


async def test_a_failed_download_says_why_and_that_it_is_tried_again(world: World) -> None:
    await world.begin()
    said = "org/tiny is gated. Accept its terms on its page at the hub."
    world.pod(ended={"exitCode": 1, "message": said})
    await world.settle()
    assert world.condition() == (
        "False",
        "DownloadFailed",
        f"{said} {AGAIN}",
    )
    assert world.status["phase"] == "Failed"
    assert ("Warning", "DownloadFailed") in {event[:2] for event in world.cluster.events}
    world.progress = Progress(5, 10, 1, 5)  # the next try gets on
    world.pod(ended={"exitCode": 1, "message": said})
    await world.settle()
    assert world.condition()[1] == "Downloading"


async def test_a_killed_download_does_not_call_its_last_line_the_reason(world: World) -> None:
    await world.begin()
    last = "org/tiny: 1.0 MB of 11.5 MB (9 %), 2.1 MB/s, 5 s left"
    world.pod(ended={"exitCode": 137, "reason": "OOMKilled", "message": last})
    await world.settle()
    assert world.condition()[2] == (
        "The download ended (OOMKilled, exit code 137); see `kubectl logs demo-weights-abcde "
        f"--previous`. {AGAIN}"
    )


async def test_another_source_is_downloaded_beside_the_engines_of_the_first(world: World) -> None:
    await world.begin()
    world.finish()
    await world.settle()
    first, first_job = world.engine(), world.get(JOB)["metadata"]["uid"]
    world.put("hf://org/other", replicas=3)
    await world.settle()
    assert not world.has(JOB)
    await world.settle()
    assert world.get(JOB)["metadata"]["uid"] != first_job
    assert world.engine() == first
    assert world.get(DEPLOYMENT)["spec"]["replicas"] == 3
    assert world.condition()[1] == "Downloading"
    other = Result("hub/models--org--other/snapshots/1", "1", 5)
    world.pod("demo-weights-fghij", "Succeeded", ended={"exitCode": 0, "message": other.text()})
    await world.settle()
    assert world.engine()["containers"][0]["args"][0].endswith(other.folder)
    assert world.status["model"] == {"resolvedRevision": "1"}


async def test_a_claim_that_was_made_anew_gets_the_same_commit(world: World) -> None:
    await world.begin()
    world.finish()
    await world.settle()
    world.cluster.remove(CLAIM)
    for _ in range(4):
        await world.settle()
    assert world.get(JOB)["spec"]["template"]["spec"]["containers"][0]["args"][0] == (
        f"hf://org/tiny@{COMMIT}"
    )
    assert world.status["model"] == {"resolvedRevision": COMMIT}
    assert world.condition()[1] == "Downloading"


async def test_the_users_claim_is_awaited_and_never_written(fake_world: World) -> None:
    world = fake_world
    world.put(cache={"mode": "pvc", "claim": "models"})
    await world.settle()
    assert world.condition()[:2] == ("False", "ClaimMissing")
    assert "cache.size" in world.condition()[2]
    claim = {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "models", "namespace": "ns"}, "spec": {},
    }  # fmt: skip
    world.cluster.put(claim)
    await world.begin()
    pod = world.get(JOB)["spec"]["template"]["spec"]
    assert pod["volumes"][1]["persistentVolumeClaim"] == {"claimName": "models"}
    assert not world.has(CLAIM)
    world.cluster.remove(MODEL)
    assert world.has(Ref("PersistentVolumeClaim", "ns", "models"))


async def test_a_deleted_model_takes_its_claim_and_job_along(world: World) -> None:
    await world.begin()
    world.cluster.remove(MODEL)
    assert not world.has(CLAIM)
    assert not world.has(JOB)


async def test_a_model_without_its_cache_loses_the_job_and_keeps_the_claim(world: World) -> None:
    await world.begin()
    world.put(cache={"mode": "none"})
    await world.settle()
    assert not world.has(JOB)
    assert world.has(CLAIM)
    assert world.engine()["containers"][0]["args"][0] == "hf://org/tiny"


async def test_a_suspended_model_downloads_nothing(world: World) -> None:
    world.put(suspend=True)
    await world.begin()
    assert world.get(JOB)["spec"]["suspend"] is True
    assert world.condition()[:2] == ("False", "Suspended")
    uid = world.get(JOB)["metadata"]["uid"]
    world.put(suspend=False)
    await world.settle()
    assert world.get(JOB)["spec"]["suspend"] is False
    assert world.get(JOB)["metadata"]["uid"] == uid


async def test_a_job_that_ended_without_its_pod_is_repeated_after_a_while(world: World) -> None:
    await world.begin()
    world.complete()
    assert await world.settle() == []
    world.now += timedelta(minutes=1)
    await world.settle()
    assert not world.has(JOB)
    await world.settle()
    assert world.has(JOB)


async def test_a_claim_without_a_volume_is_told(world: World) -> None:
    await world.begin()
    world.pod(
        phase="Pending", containerStatuses=[],
        conditions=[{"type": "PodScheduled", "status": "False", "message": "unbound claims."}],
    )  # fmt: skip
    await world.settle()
    status, reason, message = world.condition()
    assert (status, reason) == ("False", "ClaimPending")
    assert "(unbound claims);" in message
    assert "cache.storageClass" in message


async def test_somebody_elses_claim_of_the_name_is_a_conflict(world: World) -> None:
    metadata = {"name": "demo-weights", "namespace": "ns"}
    kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    world.cluster.put({**kind, "metadata": metadata, "spec": {}})
    await world.begin()
    assert world.condition("Accepted")[1] == "NameConflict"
    assert not world.has(JOB)


async def test_what_controllers_write_to_a_claim_stays(fake_world: World) -> None:
    await fake_world.begin()
    claim = fake_world.get(CLAIM)
    filled = {"manager": "kube-controller-manager", "operation": "Update"}
    filled["fieldsV1"] = {"f:spec": {"f:volumeName": {}}}  # type: ignore[assignment]
    claim["spec"]["volumeName"] = "pv-1"
    claim["metadata"]["managedFields"] = [filled]
    fake_world.cluster.put(claim)
    assert await fake_world.settle() == []


async def test_a_claim_may_grow_without_a_rollout(world: World) -> None:
    await world.begin()
    world.finish()
    await world.settle()
    before = world.engine()
    world.put(cache={"mode": "pvc", "size": "40Gi"})
    await world.settle()
    assert world.get(CLAIM)["spec"]["resources"]["requests"]["storage"] == "40Gi"
    assert world.engine() == before


async def test_engines_of_a_claim_for_one_node_stay_together(fake_world: World) -> None:
    world = fake_world
    await world.begin()
    world.finish()
    await world.settle()
    (term,) = world.engine()["affinity"]["podAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert term["labelSelector"]["matchLabels"][names.LABEL_COMPONENT] == "engine"


async def test_an_image_is_mounted_by_the_nodes(fake_world: World) -> None:
    world = fake_world
    world.put("oci://registry.example.com/org/tiny:v1//weights", cache={"mode": "image"})
    await world.settle()
    image = {"reference": "registry.example.com/org/tiny:v1", "pullPolicy": "IfNotPresent"}
    assert {"name": "model", "image": image} in world.engine()["volumes"]
    (engine,) = world.engine()["containers"]
    assert engine["args"][0] == f"$({names.ENV_MODEL_FOLDER})/weights"
    assert world.condition()[:2] == ("True", "ImageVolume")
    assert "cache" not in world.status


@pytest.mark.parametrize(
    "refusal",
    [
        'Deployment.apps "demo" is invalid: spec.template.spec.volumes[3]: Required value: no type',
        'failed to create typed patch object: .spec.template.spec.volumes[name="model"].image: no',
    ],
)
async def test_a_cluster_without_image_volumes_is_told(fake_world: World, refusal: str) -> None:
    world = fake_world
    world.put("oci://registry.example.com/org/tiny:v1", cache={"mode": "image"})
    world.cluster.refuse["Deployment"] = refusal
    await world.settle()
    status, reason, message = world.condition()
    assert (status, reason) == ("False", "NoImageVolumes")
    assert "Kubernetes 1.31" in message
    assert "pvc://CLAIM/PATH" in message


async def test_the_credentials_of_a_bucket_come_from_its_secret(fake_world: World) -> None:
    world = fake_world
    world.put("s3://models/tiny", model={"secretRef": {"name": "aws"}})
    await world.begin()
    download = world.get(JOB)["spec"]["template"]["spec"]["containers"][0]
    assert download["args"][0] == "s3://models/tiny"
    env = env_of(download)
    key = "AWS_SECRET_ACCESS_KEY"
    assert env[key] == {"secretKeyRef": {"name": "aws", "key": key}}
    assert env["AWS_REGION"]["secretKeyRef"]["optional"] is True
    assert "HF_TOKEN" not in env


async def test_a_commit_in_the_spec_is_the_resolved_revision_without_a_cache(world: World) -> None:
    world.put(f"hf://org/tiny@{COMMIT}", cache={"mode": "none"})
    await world.settle()
    assert world.status["model"] == {"resolvedRevision": COMMIT}


def test_models_without_a_cache_keep_the_hash_of_their_pods() -> None:
    """An upgrade of the operator must not restart engines."""
    obj = inference_model()
    obj["metadata"]["uid"] = "u"
    assert hash_of(ServedModel.parse(obj)) == "b41151c91719f908"


@pytest.mark.parametrize(
    "text",
    ["", "{}", "no", '{"folder":"/etc","revision":"","bytes":1}', RESULT.text() + "x",
     '{"folder":"a/../../b","revision":"","bytes":1}', '{"folder":"a","revision":"","bytes":-1}'],
)  # fmt: skip
def test_another_termination_message_is_no_result(text: str) -> None:
    assert Result.parse(text) is None


def test_results_and_progress_are_read_as_they_are_written() -> None:
    assert Result.parse(RESULT.text()) == RESULT
    assert parse_progress(b'{"bytes":5}') == Progress(5)
    assert parse_progress(b"<html>") is None
