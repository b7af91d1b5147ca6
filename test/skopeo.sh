#!/bin/sh
# Puts skopeo and Docker's registry (the program docker-registry) into a folder, for the test that copies bundles with them.
#
#   test/skopeo.sh FOLDER
#
# Debian's packages are unpacked and not installed: that of the registry would start a service. Elsewhere the two programs must be in PATH.
# packaging/deps.sh skopeo installs the libraries of skopeo.
set -eu
folder=$1
[ -x "$folder/skopeo" ] && [ -x "$folder/docker-registry" ] && exit 0
mkdir -p "$folder"
if command -v skopeo >/dev/null && command -v docker-registry >/dev/null; then
	ln -sf "$(command -v skopeo)" "$(command -v docker-registry)" "$folder"
	exit 0
fi
if ! command -v apt-get >/dev/null; then
	echo "please install skopeo and docker-registry (the registry of distribution)" >&2
	exit 1
fi
packages=$(mktemp -d)
trap 'rm -rf "$packages"' EXIT
chmod 755 "$packages" # apt's own user writes here
(
	cd "$packages"
	apt-get download -qq skopeo docker-registry 2>/dev/null || { apt-get update -qq && apt-get download -qq skopeo docker-registry; }
	for package in ./*.deb; do
		dpkg-deb -x "$package" .
	done
)
mv "$packages/usr/bin/skopeo" "$packages/usr/bin/docker-registry" "$folder"
