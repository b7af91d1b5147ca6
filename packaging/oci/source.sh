#!/bin/sh
# Fetches the sources of the OCI runtime into DIR, unless they are there: Debian's source
# packages, from the mirror that this machine uses, each checked against its SHA-256 in
# the file sources. The machine's own lists of packages stay as they are.
#   source.sh DIR
set -eu
list=$(cd "$(dirname "$0")" && pwd)/sources
mkdir -p "$1"
cd "$1"

good() { echo "$2  $1" | sha256sum --check --status 2>/dev/null; }
missing=
while read -r name version file sum; do
	case $name in '' | '#'*) continue ;; esac
	good "$file" "$sum" || missing="$missing $name=$version"
done <"$list"
[ -n "$missing" ] || exit 0

mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -n 1)
[ -n "$mirror" ] || { echo "oci: no Debian mirror is configured here; copy the files of $list into $PWD" >&2; exit 1; }
apt=$PWD/apt
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
for suite in trixie bookworm; do
	echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main"
done >"$apt/sources.list"
cat >"$apt/conf" <<END
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "-";
Dir::State::lists "$apt/lists";
Dir::Cache "$apt/cache";
APT::Sandbox::User "root";
Acquire::Retries "3";
END
export APT_CONFIG="$apt/conf"
apt-get update -qq
for package in $missing; do
	apt-get source -qq --download-only --tar-only "$package" >&2
done
rm -rf "$apt"
while read -r name version file sum; do
	case $name in '' | '#'*) continue ;; esac
	good "$file" "$sum" || { echo "oci: $file is not the one that is expected" >&2; rm -f "$file"; exit 1; }
done <"$list"
