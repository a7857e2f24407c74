# SPDX-License-Identifier: Apache-2.0
"""The list of what is in a package of ddprun, in the form of SPDX 2.3."""

import hashlib
import json
import time


def identifier(name):
    return "SPDXRef-Package-" + "".join(c if c.isalnum() else "-" for c in name)


def entry(name, version, licence, reference):
    return {
        "SPDXID": identifier(name),
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": licence,
        "copyrightText": "NOASSERTION",
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": reference}],
    }


DEBIAN_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def of_debian(name, version, machine):
    """The package URL."""
    return f"pkg:deb/debian/{name}@{version.replace(':', '%3A').replace('+', '%2B')}?arch={DEBIAN_MACHINES[machine]}"


def document(version, packages, machine, moment):
    """The bytes; packages: {(Debian's package, version): SPDX's relationship}."""
    # The terms of each are in the wheel; Debian's files name them in words, not in SPDX's identifiers.
    entries = [entry(name, number, "NOASSERTION", of_debian(name, number, machine)) for name, number in sorted(packages)]
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", identifier("ddprun"))]
    relations += [(identifier("ddprun"), how, identifier(name)) for (name, _), how in sorted(packages.items())]
    content = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"ddprun-{version}",
        "creationInfo": {
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment)),
            "creators": ["Tool: deploy/wheel.sh"],
        },
        "packages": [entry("ddprun", version, "Apache-2.0", f"pkg:pypi/ddprun@{version}"), *entries],
        "relationships": [
            {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other} for one, kind, other in relations
        ],
    }
    # Unique as the document's name has to be, and the same for the same content.
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    content["documentNamespace"] = f"https://spdx.org/spdxdocs/ddprun-{version}-{digest[:32]}"
    return (json.dumps(content, indent=1) + "\n").encode()
