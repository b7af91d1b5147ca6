#!/bin/sh
# Fetches sources of the OCI runtime into DIR, unless they are there: files of Debian's source
# packages and the packages with its C library, each checked against its SHA-256 in the file sources.
#   source.sh DIR NAME...     NAME is one of sources, or NAME=VERSION
# They are looked for in the pools of the mirrors that apt uses here, and of those that
# ISLET_DEBIAN_MIRRORS names, which may be an archive of old ones: a pool keeps a file as long as
# any revision needs it, and the check makes it the same whoever has it. apt itself fetches, with
# this machine's proxies; its lists of packages are not needed and stay as they are.
set -eu
list=$(cd "$(dirname "$0")" && pwd)/sources
mkdir -p "$1"
cd "$1"
shift

good() { echo "$2  $1" | sha256sum --check --status 2>/dev/null; }

# pools NAME are the folders of a source package: main/c/crun, main/libs/libseccomp. Debian's
# archive of security updates has them below pool/updates.
pools() {
	case $1 in
	lib?*) folder=main/$(echo "$1" | cut -c1-4)/$1 ;;
	*) folder=main/$(echo "$1" | cut -c1)/$1 ;;
	esac
	echo "pool/$folder pool/updates/$folder"
}

fetch() { # fetch NAME FILE SHA256
	! good "$2" "$3" || return 0
	# shellcheck disable=SC2016 # apt's own
	: "${mirrors:=${ISLET_DEBIAN_MIRRORS:-} $(apt-get indextargets --no-release-info --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | awk '!seen[$0]++')}"
	echo "fetching $2" >&2
	tried=
	pools=$(pools "${1%%:*}")
	for mirror in $mirrors; do
		for pool in $pools; do
			url=${mirror%/}/$pool/$2
			tried="$tried
  $url"
			# The download has another name, so that only a file with the right checksum replaces an existing one.
			if /usr/lib/apt/apt-helper -o APT::Sandbox::User=root -o Acquire::Retries=3 download-file "$url" "$PWD/$2.new" "SHA256:$3" >/dev/null 2>&1 && good "$2.new" "$3"; then
				mv "$2.new" "$2"
				return 0
			fi
			rm -f "$2.new" "$2.new.FAILED"
		done
	done
	echo "oci: no $2 with the SHA-256 that $list has was found at:${tried:- no mirror: apt has none here}" >&2
	echo "oci: copy it into $PWD (a release of islet has the sources in islet-oci-sources.tar), or name another mirror in ISLET_DEBIAN_MIRRORS" >&2
	return 1
}

for want in "$@"; do
	found=
	while read -r name version file sum; do
		case $want in "$name" | "$name=$version") ;; *) continue ;; esac
		found=yes
		fetch "$name" "$file" "$sum" || exit 1
	done <"$list"
	[ -n "$found" ] || { echo "oci: $want is not in $list" >&2; exit 1; }
done
