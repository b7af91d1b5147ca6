#!/bin/bash
# Makes a signed repository for apt and dnf of packages: a directory to be served by any
# web server, or read from a disk.
#   repo.sh PACKAGES REPO
# ISLET_SIGNING_KEY names the key in gpg's keyring; without it a key for trying is made, which
# is left in REPO/trial-key. The same packages and key give the same indices; signatures have a time.
set -euo pipefail
packages=$(cd "$1" && pwd)
mkdir -p "$2"
repo=$(cd "$2" && pwd)
if [ -z "${ISLET_SIGNING_KEY:-}" ]; then
	export GNUPGHOME=$repo/trial-key
	mkdir -p -m 0700 "$GNUPGHOME"
	ISLET_SIGNING_KEY=trial@islet.invalid
	gpg --quiet --list-secret-keys "$ISLET_SIGNING_KEY" >/dev/null 2>&1 ||
		gpg --quiet --batch --pinentry-mode loopback --passphrase '' --quick-generate-key "islet, a key for trying <$ISLET_SIGNING_KEY>" ed25519 sign never
	trap 'gpgconf --kill all' EXIT
fi
sign() { gpg --quiet --batch --yes --pinentry-mode loopback --local-user "$ISLET_SIGNING_KEY" "$@"; }
gpg --export "$ISLET_SIGNING_KEY" >"$repo/islet.gpg"
gpg --armor --export "$ISLET_SIGNING_KEY" >"$repo/islet.asc"
when=@${SOURCE_DATE_EPOCH:?}

# apt
rm -rf "$repo/apt"
mkdir -p "$repo/apt/pool"
cp -p "$packages"/*.deb "$repo/apt/pool/"
cd "$repo/apt"
for arch in amd64 arm64 armhf riscv64; do
	index=dists/stable/main/binary-$arch
	mkdir -p $index
	dpkg-scanpackages --multiversion --arch $arch pool 2>/dev/null >$index/Packages
	gzip -9nk $index/Packages
done
{
	printf '%s\n' 'Origin: islet' 'Label: islet' 'Suite: stable' 'Codename: stable' 'Architectures: amd64 arm64 armhf riscv64' 'Components: main' "Date: $(LC_ALL=C date -u -R -d "$when")" 'SHA256:'
	cd dists/stable
	find main -type f | sort | while read -r f; do printf ' %s %s %s\n' "$(sha256sum "$f" | cut -d ' ' -f 1)" "$(stat -c %s "$f")" "$f"; done
} >"$repo/apt/dists/Release.new"
mv "$repo/apt/dists/Release.new" "$repo/apt/dists/stable/Release"
cd "$repo/apt/dists/stable"
sign --clearsign --output InRelease Release
sign --armor --detach-sign --output Release.gpg Release

# dnf
rm -rf "$repo/rpm"
mkdir -p "$repo/rpm"
cp -p "$packages"/*.rpm "$repo/rpm/"
createrepo_c --quiet --no-database --set-timestamp-to-revision --revision "${when#@}" "$repo/rpm" >/dev/null
sign --armor --detach-sign --output "$repo/rpm/repodata/repomd.xml.asc" "$repo/rpm/repodata/repomd.xml"
cat >"$repo/islet.repo" <<END
[islet]
name=islet
baseurl=file://$repo/rpm
repo_gpgcheck=1
gpgcheck=0
gpgkey=file://$repo/islet.asc
END
cat >"$repo/islet.sources" <<END
Types: deb
URIs: file:$repo/apt
Suites: stable
Components: main
Signed-By: $repo/islet.gpg
END
