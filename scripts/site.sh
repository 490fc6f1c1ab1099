#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the site into build/site/html from docs/ and the public headers, with mkdocs-material from PyPI. Fails for links
# and anchors that do not resolve and for pages that load something from another host. Builds it with zensical too, into
# build/site/zensical, which shows that mkdocs.yml suits both.
#   scripts/site.sh              then: python3 -m http.server -d build/site/html
# The tools come from PyPI into build/site/tools; SITE_TOOLS names another virtual environment that has them.
# Ends with status 77 if they cannot be installed.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

tools=${SITE_TOOLS:-$PWD/build/site/tools}
export NO_MKDOCS_2_WARNING=1 # The theme advertises its successor otherwise.

if [ ! -x "$tools/bin/zensical" ]; then
    say "Installing mkdocs-material and zensical into $tools"
    if ! quietly site-venv python3 -m venv "$tools" ||
        ! quietly site-pip "$tools/bin/pip" install mkdocs==1.6.1 mkdocs-material==9.8.1 zensical==0.0.73; then
        say "skipped: PyPI gives no mkdocs-material or no zensical"
        exit 77
    fi
fi

tools/site.py prepare build/site
quietly site "$tools/bin/mkdocs" build --strict --clean -f build/site/mkdocs.yml
tools/site.py check build/site/html

sed 's|^site_dir: .*|site_dir: zensical|' build/site/mkdocs.yml >build/site/zensical.yml
quietly site-zensical "$tools/bin/zensical" build --strict --clean -f build/site/zensical.yml
tools/site.py check build/site/zensical
say "build/site/html/index.html"
