#!/bin/sh
# Sees to an OCI runtime for `make run`, and installs nothing: the one that islet ships, if it was
# built here before; else it is built, without libsystemd, which gcc and make can do. Only where
# that fails is the host's used, which may be slower or let containers escape. The output says so.
#   for-run.sh DIR GOARCH    what was built is linked to as DIR/crun
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
if oci=$("$here/build.sh" "$2" cached 2>/dev/null) || oci=$("$here/build.sh" "$2" run); then
	# In one step: the node of another run may be starting a container through it.
	ln -s "$oci" "$1/.crun.$$"
	mv -fT "$1/.crun.$$" "$1/crun"
	exit
fi
rm -f "$1/crun"
for name in crun runc; do
	if host=$(command -v $name); then
		echo "islet demo: the OCI runtime that islet ships could not be built here (see above), so $host is used: it may be slower, and bin/islet doctor says what is known of it" >&2
		exit
	fi
done
echo "islet demo: the OCI runtime that islet ships could not be built here (see above), and the machine has none: install gcc, make, git and libc6-dev, or crun" >&2
exit 1
