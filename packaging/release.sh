#!/bin/bash
# Gathers a release in DIR: archives, install.sh, packages, the sources of the OCI runtime, lists of components (SPDX), notes from the
# changelog and the history, the public keys, SHA-256 sums, and signatures.
#   release.sh VERSION DIST DIR
#   release.sh VERSION            checks only, before half an hour of building: changelog, advisories, keys, and sources
# ISLET_RELEASE_KEYS names files with keys (packaging/sign), separated by colons. All of them sign each archive, as islet update requires.
# ISLET_SIGNING_KEY names the key in gpg's keyring that signs the sums. The script reports what it does not sign. The notes name a key
# whose file or user ID has the word "trial" as a trial key.
# If anything is missing, the script fails and DIR stays as it was.
set -euo pipefail
version=$1
here=$(cd "$(dirname "$0")" && pwd)
top=$(dirname "$here")
say() { echo "release: $*" >&2; }

# A version without a section in the changelog cannot be released, and neither can one with changes that are still listed as unreleased.
changes=$(awk -v version="$version" '/^## / { on = $2 == version; next } on' "$top/CHANGELOG.md")
[ -n "$changes" ] || { say "CHANGELOG.md has no section \"## $version - DATE\""; exit 1; }
! grep -q '^## Unreleased' "$top/CHANGELOG.md" || { say "CHANGELOG.md still has a section of unreleased changes: give it the version and the date"; exit 1; }

# The snapshot of advisories may be at most 60 days old.
(cd "$top" && GOARCH='' GOFLAGS='' go run ./packaging/advisories check -max-age 60 . ./runtime/shim/cmd) >&2

sign() { (cd "$top" && GOARCH='' GOFLAGS=-trimpath go run ./packaging/sign "$@"); }
IFS=: read -ra keys <<<"${ISLET_RELEASE_KEYS:-}"
for i in "${!keys[@]}"; do
	keys[i]=$(realpath -e "${keys[i]}")
	sign public "${keys[i]}" >/dev/null
done
[ -z "${ISLET_SIGNING_KEY:-}" ] || gpg --batch --list-secret-keys "$ISLET_SIGNING_KEY" >/dev/null

# The licences of the OCI runtime require its exact sources and build scripts, with the C library that is linked into it.
sources=${ISLET_OCI_CACHE:-$top/.cache/oci-build}/source
fetch_sources() { # fetch_sources NAME..., such as crun or glibc=2.36-9+deb12u14
	local name lacks=()
	for name in "$@"; do "$here/oci/source.sh" "$sources" "$name" || lacks+=("$name"); done
	[ ${#lacks[@]} = 0 ] || { say "not made, because the sources of ${lacks[*]} are missing (packaging/oci/README.md)"; exit 1; }
}
if [ $# = 1 ]; then
	# A release has no older C library than this machine's apt offers for the same Debian.
	libc=$(awk '$1 == "glibc" { print $2; exit }' "$here/oci/sources")
	offered=$(LC_ALL=C apt-cache policy libc6-dev 2>/dev/null | awk '$1 == "Candidate:" { print $2 }' || true)
	if [ "${libc%-*}" = "${offered%-*}" ] && dpkg --compare-versions "$libc" lt "$offered"; then
		say "packaging/oci/sources names glibc $libc, and apt offers $offered: update that file (packaging/oci/README.md)"
		exit 1
	fi
	mapfile -t names < <(awk '/^[^#]/ { print $1 }' "$here/oci/sources" | sort -u)
	fetch_sources "${names[@]}"
	exit
fi
dist=$(cd "$2" && pwd)
mkdir -p "$(dirname "$3")"
to=$(cd "$(dirname "$3")" && pwd)/$(basename "$3")
new=$to.new
rm -rf "$new"
mkdir -p "$new"

# Only files of exactly this version: 0.1.0 is neither 0.1.0-rc1 nor 10.1.0.
cp -p "$dist"/islet-"$version"-linux-*.tar.gz "$new/"
cp -p "$here/install.sh" "$new/" # it is run with the name of an archive
for name in islet islet-cni islet-kubelet; do
	cp -p "$dist/packages/${name}_$version"-1_*.deb "$dist/packages/$name-$version"-1.*.rpm "$new/"
done
for d in "$dist"/islet-"$version"-linux-*/; do
	cp -p "$d/doc/islet.spdx.json" "$new/$(basename "$d").spdx.json"
done

libcs=() # the SPDX file of each archive names its version
for spdx in "$new"/*.spdx.json; do
	libc=$(sed -n '/"name": "glibc"/{n;s/.*: "\(.*\)",/glibc=\1/p}' "$spdx")
	[ -n "$libc" ] || { say "$(basename "$spdx") does not name a C library"; exit 1; }
	libcs+=("$libc")
done
mapfile -t libcs < <(printf '%s\n' "${libcs[@]}" | sort -u)
names=(crun libseccomp libcap2 systemd "${libcs[@]}")
fetch_sources "${names[@]}"
files=$(for name in "${names[@]}"; do awk -v want="$name" '$1 == want || $1 "=" $2 == want { print $3 }' "$here/oci/sources"; done | sort -u)
# shellcheck disable=SC2086 # a list of names
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:?}" -cf "$new/islet-oci-sources.tar" -C "$here" oci -C "$sources" $files

trial_note() { if grep -qi trial <<<"$1"; then echo ', a trial key: do not trust it on a node that matters'; fi; }
signers=
if [ ${#keys[@]} -gt 0 ]; then
	for key in "${keys[@]}"; do
		signers+="- The archives, for \`islet update\`: \`$(sign public "$key")\`$(trial_note "${key##*/}")"$'\n'
	done
	sign public "${keys[@]}" >"$new/release.keys"
	for archive in "$new"/*.tar.gz; do
		arch=${archive##*-linux-}
		sign release "$version" "${arch%.tar.gz}" "$archive" "${keys[@]}"
		sign verify "$archive" "$new/release.keys" >&2
	done
else
	signers+="- The archives are not signed, and \`islet update\` rejects them."$'\n'
	say "ISLET_RELEASE_KEYS is not set: the archives are not signed, and islet update rejects them"
fi
if [ -n "${ISLET_SIGNING_KEY:-}" ]; then
	listing=$(gpg --batch --with-colons --list-keys "$ISLET_SIGNING_KEY")
	fingerprint=$(awk -F: '$1 == "fpr" { print $10; exit }' <<<"$listing")
	user=$(awk -F: '$1 == "uid" { print $10; exit }' <<<"$listing")
	signers+="- \`SHA256SUMS\`, by gpg: \`$fingerprint\`, $user$(trial_note "$user")"$'\n'
else
	signers+="- \`SHA256SUMS\` is not signed."$'\n'
fi

# The notes are the changelog's section, then the keys, and then all commits, sorted by the part before the colon of their subject, such as
# agent or internal/config. Links of the changelog lead to the files of this version, because they are not beside the notes.
{
	files=https://github.com/islet-edge/islet/blob/v$version
	before=$(git -C "$top" describe --tags --abbrev=0 --match 'v*' HEAD^ 2>/dev/null || true)
	echo "# islet $version"
	sed -E "s,\]\(((docs|packaging)/|[A-Z]+\.md),]($files/\1,g" <<<"$changes"
	echo
	echo "## Signatures"
	echo
	echo "Compare the keys with those that you got in another way ([commands]($files/packaging/README.md#packages-repositories-releases))."
	echo
	echo "$signers"
	echo "## All changes${before:+ since $before}, by part"
	git -C "$top" log --no-merges --reverse --format=%s "${before:+$before..}HEAD" | awk '
		{
			room = "others"; what = $0
			if (match($0, /^[a-z][^ :]*(, [^ :]+)*: /)) {
				room = substr($0, 1, RLENGTH - 2); what = substr($0, RLENGTH + 1)
				if (match(room, /^[^,\/]+\//)) { what = substr(room, RLENGTH + 1) ": " what; room = substr(room, 1, RLENGTH - 1) }
			}
			said[room] = said[room] "- " what "\n"
			if (room != "others" && !(room in seen)) { seen[room] = 1; order[++n] = room }
		}
		END { if ("others" in said) order[++n] = "others"; for (i = 1; i <= n; i++) printf "\n### %s\n\n%s", order[i], said[order[i]] }'
} >"$new/NOTES.md"
cd "$new"
sums=$(sha256sum -- *)
echo "$sums" >SHA256SUMS
if [ -n "${ISLET_SIGNING_KEY:-}" ]; then
	gpg --quiet --batch --yes --pinentry-mode loopback --local-user "$ISLET_SIGNING_KEY" --armor --detach-sign --output SHA256SUMS.asc SHA256SUMS
else
	say "ISLET_SIGNING_KEY is not set: SHA256SUMS is not signed"
fi
rm -rf "$to"
mv "$new" "$to"
ls -l "$to"
