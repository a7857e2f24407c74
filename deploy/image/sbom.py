#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints what is in an image, as SPDX 2.3 in JSON, for scanners of vulnerabilities and for people:

    sbom.py NAME ROOT_FOLDER        for instance: sbom.py ddprun "$(buildah mount CONTAINER)"

Debian's packages by the image's own list, Python's wheels by their metadata, and what is linked into the programs by the lists
that deploy/image/arrange.py has written. Nothing else is read, and nothing is asked of a network.
"""

import hashlib
import json
import pathlib
import re
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "wheel"))
from sbom import entry, identifier, of_debian  # noqa: E402

MACHINE = "x86_64"


def fields(text):
    return dict(re.findall(r"^([A-Za-z-]+): (.+)$", text, re.MULTILINE))


def debian_packages(root):
    """[(name, version)] of those installed; an image without dpkg has a file for each package."""
    folder, paragraphs = root / "var/lib/dpkg", []
    if (folder / "status").exists():
        paragraphs = (folder / "status").read_text().split("\n\n")
    for path in sorted(folder.glob("status.d/*")):
        paragraphs.append(path.read_text())
    known = map(fields, paragraphs)
    return sorted((one["Package"], one["Version"]) for one in known if one.get("Status", "").endswith(" installed"))


def python_packages(root):
    """[(name, version)] of the wheels that files of the image are of."""
    known = (fields(path.read_text(errors="replace").split("\n\n")[0]) for path in sorted(root.glob("opt/ddprun/lib/*.dist-info/METADATA")))
    return [(re.sub(r"[-_.]+", "-", one["Name"]).lower(), one["Version"]) for one in known]


def contents(name, root):
    """(packages, relations) of the image itself, without a document around them."""
    packages, relations, image = {}, [], f"image-{name}"

    def add(package, owner, how):
        relation = {"spdxElementId": owner, "relationshipType": how, "relatedSpdxElement": package["SPDXID"]}
        packages.setdefault(package["SPDXID"], package)
        if relation not in relations:
            relations.append(relation)

    version = "NOASSERTION"
    for path in sorted(root.glob("opt/ddprun/programs-*.spdx.json")):
        listed = json.loads(path.read_text())
        version = next(one["versionInfo"] for one in listed["packages"] if one["name"] == "ddprun")
        for package in listed["packages"]:
            packages.setdefault(package["SPDXID"], package)
        relations += [one for one in listed["relationships"] if one["relationshipType"] != "DESCRIBES" and one not in relations]
    if not packages:
        sys.exit(f"sbom.py: {root} has no opt/ddprun/programs-*.spdx.json, so it is no image of deploy/Dockerfile; name the root of one")
    relations.append({"spdxElementId": identifier(image), "relationshipType": "CONTAINS", "relatedSpdxElement": identifier("ddprun")})
    for package, number in debian_packages(root):
        add(entry(package, number, "NOASSERTION", of_debian(package, number, MACHINE)), identifier(image), "CONTAINS")
    for package, number in python_packages(root):
        add(entry(package, number, "NOASSERTION", f"pkg:pypi/{package}@{number.replace('+', '%2B')}"), identifier(image), "CONTAINS")
    own = entry(image, version, "Apache-2.0", f"pkg:oci/{name}?tag={version}")
    relations.insert(0, {"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": own["SPDXID"]})
    return [own, *packages.values()], relations


def main():
    name, root = sys.argv[1], pathlib.Path(sys.argv[2])
    packages, relations = contents(name, root)
    content = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"image-{name}",
        "creationInfo": {"created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "creators": ["Tool: deploy/image/sbom.py"]},
        "packages": packages,
        "relationships": relations,
    }
    digest = hashlib.sha256(json.dumps([packages, relations]).encode()).hexdigest()
    content["documentNamespace"] = f"https://spdx.org/spdxdocs/image-{name}-{digest[:32]}"
    print(json.dumps(content, indent=1))


if __name__ == "__main__":
    main() if len(sys.argv) == 3 else sys.exit(__doc__)
