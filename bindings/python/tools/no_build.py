# SPDX-License-Identifier: Apache-2.0
"""Build backend that ends `pip install` of the sources with one line: pip has no compiler for the library."""

MESSAGE = "libantigravity: pip cannot build it from its sources; scripts/wheel.sh makes a wheel, which pip installs"


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    raise SystemExit(MESSAGE)


def build_sdist(sdist_directory, config_settings=None):
    raise SystemExit(MESSAGE)
