#!/bin/bash
# Makes a signed repository for apt and dnf of packages: a directory to be served by any
# web server, or read from a disk.
#   repo.sh PACKAGES REPO
# ISLET_SIGNING_KEY names the key in gpg's keyring; without it a key for trying is made in
# trial-key beside REPO, which says so. URL is where the directory will be read, such as
# https://example.com/islet; without it, where it is now. The same packages and key give the same
# indices; signatures have a time.
# It is made beside REPO and takes its place by a rename: one that is served stays as it is, whole
# and signed, when something fails.
set -euo pipefail
packages=$(cd "$1" && pwd)
mkdir -p "$(dirname "$2")"
at=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
url=${URL:-file://$at}
url=${url%/}
file=$url # what apt reads without a server has one slash, as it writes it itself
case $url in file:*) file=file:${url#file://} ;; esac
if [ -z "${ISLET_SIGNING_KEY:-}" ]; then
	GNUPGHOME=$(dirname "$at")/trial-key
	export GNUPGHOME
	echo "repo: ISLET_SIGNING_KEY is not set: the repository is signed by a key for trying, without a passphrase, in $GNUPGHOME: do not publish it" >&2
	[ -d "$GNUPGHOME" ] || mkdir -m 0700 "$GNUPGHOME"
	ISLET_SIGNING_KEY=trial@islet.invalid
	gpg --quiet --list-secret-keys "$ISLET_SIGNING_KEY" >/dev/null 2>&1 ||
		gpg --quiet --batch --pinentry-mode loopback --passphrase '' --quick-generate-key "islet, a key for trying <$ISLET_SIGNING_KEY>" ed25519 sign never
	trap 'gpgconf --kill all' EXIT
fi
sign() { gpg --quiet --batch --yes --pinentry-mode loopback --local-user "$ISLET_SIGNING_KEY" "$@"; }
when=@${SOURCE_DATE_EPOCH:?}
repo=$at.new
rm -rf "$repo"
mkdir -p "$repo/apt/pool" "$repo/rpm"
gpg --export "$ISLET_SIGNING_KEY" >"$repo/islet.gpg"
gpg --armor --export "$ISLET_SIGNING_KEY" >"$repo/islet.asc"
[ -s "$repo/islet.gpg" ] || { echo "repo: gpg has no key $ISLET_SIGNING_KEY" >&2; exit 1; }

# apt
cp -p "$packages"/*.deb "$repo/apt/pool/"
cd "$repo/apt"
for arch in amd64 arm64 armhf riscv64; do
	index=dists/stable/main/binary-$arch
	mkdir -p $index
	dpkg-scanpackages --multiversion --arch $arch pool 2>/dev/null >$index/Packages
	gzip -9nk $index/Packages
done
cd dists/stable
files=$(find main -type f | sort | while read -r f; do printf ' %s %s %s\n' "$(sha256sum "$f" | cut -d ' ' -f 1)" "$(stat -c %s "$f")" "$f"; done)
printf '%s\n' 'Origin: islet' 'Label: islet' 'Suite: stable' 'Codename: stable' 'Architectures: amd64 arm64 armhf riscv64' 'Components: main' "Date: $(LC_ALL=C date -u -R -d "$when")" 'SHA256:' "$files" >Release
sign --clearsign --output InRelease Release
sign --armor --detach-sign --output Release.gpg Release

# dnf
cp -p "$packages"/*.rpm "$repo/rpm/"
createrepo_c --quiet --no-database --set-timestamp-to-revision --revision "${when#@}" "$repo/rpm" >/dev/null
sign --armor --detach-sign --output "$repo/rpm/repodata/repomd.xml.asc" "$repo/rpm/repodata/repomd.xml"
cat >"$repo/islet.repo" <<END
[islet]
name=islet
baseurl=$url/rpm
repo_gpgcheck=1
gpgcheck=0
gpgkey=$url/islet.asc
END
# apt reads the key from a file of the machine's: where a directory is, or an administrator put it.
key=/etc/apt/keyrings/islet.gpg
case $url in file:*) key=${file#file:}/islet.gpg ;; esac
cat >"$repo/islet.sources" <<END
Types: deb
URIs: $file/apt
Suites: stable
Components: main
Signed-By: $key
END
rm -rf "$at.old"
[ ! -e "$at" ] || mv -T "$at" "$at.old"
mv -T "$repo" "$at"
rm -rf "$at.old"
