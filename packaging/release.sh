#!/bin/bash
# Gathers a release: archives, packages, the sources of the OCI runtime, what they are made of
# (SPDX), notes from the history, SHA-256 of all, and a signature of those.
#   release.sh VERSION DIST DIR
# ISLET_SIGNING_KEY names the key in gpg's keyring; without it the release is not signed, and says so.
set -euo pipefail
version=$1 dist=$2 to=$3
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$to"
mkdir -p "$to"
cp -p "$dist"/islet-"$version"-linux-*.tar.gz "$dist"/packages/*"$version"* "$to/"
for d in "$dist"/islet-"$version"-linux-*/; do
	cp -p "$d/doc/islet.spdx.json" "$to/$(basename "$d").spdx.json"
done
# What the licences of the OCI runtime want: its exact sources, with what builds it.
sources=${ISLET_OCI_CACHE:-$(dirname "$here")/.cache/oci-build}/source
"$here/oci/source.sh" "$sources"
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:?}" -cf "$to/islet-oci-sources.tar" -C "$here" oci -C "$sources" $(cd "$sources" && ls -d -- *.tar.*)
{
	echo "# islet $version"
	before=$(git describe --tags --abbrev=0 --match 'v*' HEAD^ 2>/dev/null || true)
	echo
	echo "What is new${before:+ since $before}, by part:"
	git log --no-merges --reverse --format=%s "${before:+$before..}HEAD" | awk -F ': ' '
		NF > 1 { room = $1; sub(/^[^:]*: /, ""); said[room] = said[room] "- " $0 "\n"; if (!(room in seen)) { seen[room] = 1; order[++n] = room } }
		END { for (i = 1; i <= n; i++) printf "\n## %s\n\n%s", order[i], said[order[i]] }'
} >"$to/NOTES.md"
cd "$to"
sha256sum -- * >SHA256SUMS.new
mv SHA256SUMS.new SHA256SUMS
if [ -n "${ISLET_SIGNING_KEY:-}" ]; then
	gpg --quiet --batch --yes --pinentry-mode loopback --local-user "$ISLET_SIGNING_KEY" --armor --detach-sign --output SHA256SUMS.asc SHA256SUMS
else
	echo "release: ISLET_SIGNING_KEY is not set: SHA256SUMS is not signed" >&2
fi
ls -l
