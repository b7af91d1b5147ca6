#!/bin/sh
# Sees to an OCI runtime for `make run`: the one that islet ships, if it was built here
# before; else the host's; else, where there is a compiler, the shipped one is built, which
# takes minutes and installs nothing; else the distribution's is installed.
#   for-run.sh DIR GOARCH    the shipped one is linked to as DIR/crun
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
rm -f "$1/crun"
if oci=$("$here/build.sh" "$2" cached 2>/dev/null); then
	ln -s "$oci" "$1/crun"
	exit
fi
for name in crun runc; do
	! command -v $name >/dev/null 2>&1 || exit 0
done
if command -v gcc >/dev/null && command -v meson >/dev/null && oci=$("$here/build.sh" "$2"); then
	ln -s "$oci" "$1/crun"
	exit
fi
exec "$here/../deps.sh" run
