# SPDX-License-Identifier: Apache-2.0
"""Checks the objects on stdin (a JSON list): those of Kubernetes against its own schemas, strictly; those of JobSet and Kubeflow
Trainer against the models of Trainer's Python package, which must give back what they were given, and their Jobs as Jobs.
Prints what is wrong. Runs in the environment of deploy/requirements-kubernetes.txt."""

import json
import sys

import kubernetes_validate
from kubeflow_trainer_api import models

VERSION = "1.37"
MODELS = {
    "JobSet": models.JobsetV1alpha2JobSet,
    "ClusterTrainingRuntime": models.TrainerV1alpha1ClusterTrainingRuntime,
    "TrainJob": models.TrainerV1alpha1TrainJob,
    "UpdateTrainJobStatusRequest": models.TrainerV1alpha1UpdateTrainJobStatusRequest,
}


def jobs_of(thing):
    spec = thing["spec"].get("template", {}).get("spec", {}) if thing["kind"] == "ClusterTrainingRuntime" else thing.get("spec", {})
    for job in spec.get("replicatedJobs", ()):
        yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]}, "spec": job["template"]["spec"]}


def lost(given, kept, path=""):
    """Where `kept` lacks something of `given`; a time or a quantity may be written in another way."""
    if isinstance(given, dict):
        for name, value in given.items():
            if not isinstance(kept, dict) or name not in kept:
                yield f"{path}/{name}"
            else:
                yield from lost(value, kept[name], f"{path}/{name}")
    elif isinstance(given, list):
        for number, value in enumerate(given):
            yield from lost(value, kept[number], f"{path}/{number}")


def check(thing):
    name = f"{thing['kind']} {thing.get('metadata', {}).get('name')}"
    if thing["kind"] in MODELS:
        given = {key: value for key, value in thing.items() if thing["kind"] != "UpdateTrainJobStatusRequest" or key != "kind"}
        kept = MODELS[thing["kind"]].from_json(json.dumps(given)).to_dict()
        for path in lost(given, json.loads(json.dumps(kept, default=str))):
            print(f"{name}: no such field: {path}")
        for job in jobs_of(thing):
            check(job)
    else:
        kubernetes_validate.validate(thing, VERSION, strict=True)


for one in json.load(sys.stdin):
    try:
        check(one)
    except Exception as error:  # of whichever library
        print(f"{one['kind']} {one.get('metadata', {}).get('name')}: {error}")
