#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the SPDX 2.3 document of a release: its files with their checksums, and what is linked into them.

usage: sbom.py VERSION COMMIT SECONDS --sources DIR FILE... > antigravity-VERSION.spdx.json
    SECONDS is the time of the commit. DIR has a directory for each library, with its sources, NAME/NAME-VERSION.
"""

import argparse
import datetime
import hashlib
import json
import pathlib
import re
import sys

LICENSES = {"jansson": "MIT", "pcre2": "BSD-3-Clause", "utf8proc": "MIT", "libevent": "BSD-3-Clause"}
ORIGINS = {
    "jansson": "https://github.com/akheron/jansson",
    "pcre2": "https://github.com/PCRE2Project/pcre2",
    "utf8proc": "https://github.com/JuliaStrings/utf8proc",
    "libevent": "https://libevent.org",
}


def package(name: str, version: str, spdx_license: str, origin: str = "NOASSERTION") -> dict:
    return {
        "SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name),
        "name": name,
        "versionInfo": version,
        "downloadLocation": origin,
        "filesAnalyzed": False,
        "licenseConcluded": spdx_license,
        "licenseDeclared": spdx_license,
        "copyrightText": "NOASSERTION",
    }


def library(sources: pathlib.Path, name: str) -> dict:
    """A library whose sources are in one directory: NAME-VERSION."""
    found = sorted(sources.glob(f"{name}/{name}-*/"))
    if not found:
        sys.exit(f"sbom.py: {sources}/{name}: no directory {name}-VERSION; scripts/deps-cross.sh makes it")
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        sys.exit(f"sbom.py: {sources}/{name}: {names}: one version must be there; remove those that are not linked")
    return package(name, found[0].name.removeprefix(name + "-"), LICENSES[name], ORIGINS[name])


def is_linked(file: str) -> bool:
    """Whether the libraries are in the file itself; packages of Debian name theirs."""
    return file.endswith(".whl") or "-linux-" in file


def relation(a: dict, kind: str, b: dict) -> dict:
    return {"spdxElementId": a["SPDXID"], "relationshipType": kind, "relatedSpdxElement": b["SPDXID"]}


def document(version: str, commit: str, seconds: int, sources: pathlib.Path, files: list[pathlib.Path]) -> dict:
    created = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    root = {"SPDXID": "SPDXRef-DOCUMENT"}
    source = package("antigravity-source", version, "Apache-2.0")
    source["sourceInfo"] = f"git commit {commit}"
    libraries = [library(sources, name) for name in LICENSES]
    musl = package("musl", "as in zig 0.17.1", "MIT", "https://musl.libc.org")
    relations, products = [], []
    for file in sorted(files):
        product = package(file.name, version, "Apache-2.0")
        product["packageFileName"] = file.name
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        product["checksums"] = [{"algorithm": "SHA256", "checksumValue": digest}]
        products.append(product)
        relations += [relation(root, "DESCRIBES", product), relation(product, "GENERATED_FROM", source)]
        if is_linked(file.name):
            relations += [relation(product, "STATIC_LINK", each) for each in libraries]
        if "-linux-" in file.name:
            relations.append(relation(product, "STATIC_LINK", musl))
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": root["SPDXID"],
        "name": f"antigravity-{version}",
        "documentNamespace": f"https://spdx.org/spdxdocs/antigravity-{version}-{commit}",
        "creationInfo": {"created": created, "creators": ["Tool: antigravity-sbom.py"]},
        "packages": [*products, source, *libraries, musl],
        "relationships": relations,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version")
    parser.add_argument("commit")
    parser.add_argument("seconds", type=int)
    parser.add_argument("--sources", type=pathlib.Path, required=True)
    parser.add_argument("files", type=pathlib.Path, nargs="+")
    a = parser.parse_args()
    json.dump(document(a.version, a.commit, a.seconds, a.sources, a.files), sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
