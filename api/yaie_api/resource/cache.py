"""`spec.cache` and `status.cache` of an InferenceModel: weights that all engines share."""

from typing import Literal

from pydantic import ConfigDict, Field

from yaie_api.resource.schema import DNS_SUBDOMAIN, Bytes, Part, Rule, rules

AccessMode = Literal["ReadWriteOnce", "ReadWriteMany"]


class Cache(Part):
    """Where the weights are kept for all engines."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "!has(self.mode) || self.mode != 'pvc' || has(self.size) != has(self.claim)",
                "cache.mode: pvc needs one of two: write cache.size, for example 20Gi, for a claim "
                "that the operator makes, or cache.claim for one that exists",
            ),
            Rule(
                "(has(self.mode) && self.mode == 'pvc') || "
                "(!has(self.size) && !has(self.claim) && !has(self.storageClass)"
                " && !has(self.accessMode))",
                "cache.size, claim, storageClass and accessMode belong to cache.mode: pvc; write "
                "that mode, or remove them",
            ),
            Rule(
                "!has(self.claim)",
                "under `yaie up` the claim is made; write cache.size instead of cache.claim",
                local_only=True,
            ),
            Rule(
                "!has(self.claim) || (!has(self.storageClass) && !has(self.accessMode))",
                "cache.storageClass and cache.accessMode are for a claim that the operator makes; "
                "remove them, cache.claim has its own",
            ),
            Rule(
                "!has(self.size) || !has(oldSelf.size) || "
                "(has(self.storageClass) ? self.storageClass : '') == "
                "(has(oldSelf.storageClass) ? oldSelf.storageClass : '')",
                "the storage class of a claim cannot change; name a claim of the other class in "
                "cache.claim, or delete the model and apply it again",
            ),
            Rule(
                "!has(self.size) || !has(oldSelf.size) || "
                "(has(self.accessMode) ? self.accessMode : 'ReadWriteOnce') == "
                "(has(oldSelf.accessMode) ? oldSelf.accessMode : 'ReadWriteOnce')",
                "the access mode of a claim cannot change; name another claim in cache.claim, or "
                "delete the model and apply it again",
            ),
        )
    )

    mode: Literal["none", "pvc", "image"] = Field(
        default="none",
        description="none: each engine downloads for itself. pvc: one download (a Job) fills a "
        "PersistentVolumeClaim that all engines mount; they need no network then. image: the "
        "weights are an OCI image (oci://) that the nodes mount.",
    )
    size: Bytes | None = Field(
        default=None,
        description="Size of the claim NAME-weights that the operator makes, for example 20Gi. It "
        "may grow where the storage class allows it. The claim is deleted with the model.",
    )
    storage_class: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        pattern=DNS_SUBDOMAIN,
        description="StorageClass of that claim. Default: the cluster's.",
    )
    access_mode: AccessMode | None = Field(
        default=None,
        description="Access mode of that claim. Default: ReadWriteOnce, with which all engines run "
        "on one node; ReadWriteMany where the storage class offers it.",
    )
    claim: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        pattern=DNS_SUBDOMAIN,
        description="A PersistentVolumeClaim of this namespace to use instead. It is kept when the "
        "model is deleted, and models may share it.",
    )


class CacheStatus(Part):
    """How far the download into the claim is."""

    key: str = Field(
        default="", max_length=64, description="Hash of the source and the claim that this is of."
    )
    folder: str | None = Field(
        default=None,
        max_length=1024,
        description="Folder of the weights in the claim; absent until they are complete.",
    )
    bytes: int = Field(default=0, ge=0, description="Bytes that are there.")
    total_bytes: int | None = Field(
        default=None, ge=0, description="Bytes of the whole model; absent while it is not known."
    )
    bytes_per_second: int | None = Field(
        default=None, ge=0, description="Speed of the download; absent when none runs."
    )
    eta_seconds: int | None = Field(
        default=None, ge=0, description="Seconds that are left at this speed."
    )


SOURCE_RULES = (
    Rule(
        "!has(self.cache) || !has(self.cache.mode) || self.cache.mode != 'pvc'"
        " || self.model.source.startsWith('hf:') || self.model.source.startsWith('s3:')",
        "cache.mode: pvc keeps what is downloaded, so it needs an hf:// or s3:// source; remove "
        "cache for another source",
    ),
    Rule(
        "(has(self.cache) && has(self.cache.mode) && self.cache.mode == 'image')"
        " == self.model.source.startsWith('oci:')",
        "an oci:// source and cache.mode: image belong together; write both, for example source: "
        "oci://example.com/org/model:v1 with cache: {mode: image}, or neither",
    ),
)
"""Rules of the whole spec: which cache fits which source."""
