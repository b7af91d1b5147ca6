#!/bin/bash
# Builds the OCI runtime that islet ships, crun, from the sources of source.sh: one static
# program with seccomp, capabilities and the systemd cgroup driver, the same bytes from the
# same sources and compiler. It prints its path. What was built is kept in .cache/oci-build,
# or in $ISLET_OCI_CACHE, which several checkouts may share.
#   build.sh GOARCH           amd64, arm64, arm (ARMv7, hard float) or riscv64
#   build.sh GOARCH cached    fails if it was not built yet
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
case ${1:?say for which architecture} in
amd64) triplet=x86_64-linux-gnu cpu=x86_64 ;;
arm64) triplet=aarch64-linux-gnu cpu=aarch64 ;;
arm) triplet=arm-linux-gnueabihf cpu=arm ;;
riscv64) triplet=riscv64-linux-gnu cpu=riscv64 ;;
*) echo "oci: unknown architecture $1" >&2; exit 2 ;;
esac
cache=${ISLET_OCI_CACHE:-$(cd "$here/../.." && pwd)/.cache/oci-build}
if [ "${2:-}" = cached ]; then
	[ -d "$cache" ] || exit 1
fi
command -v $triplet-gcc >/dev/null || { echo "oci: $triplet-gcc is not installed: packaging/deps.sh oci-cross" >&2; exit 1; }
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
key=$({ cat "$here"/build.sh "$here"/sources "$here"/patches/*; $triplet-gcc --version; } | sha256sum | cut -c1-16)
out=$cache/$1-$key
if [ -x "$out/crun" ]; then
	echo "$out/crun"
	exit
fi
[ "${2:-}" != cached ] || exit 1
"$here/source.sh" "$cache/source" >&2
echo "building the OCI runtime for $1" >&2
find "$cache" -mindepth 1 -maxdepth 1 -type d -name "$1-*" -exec rm -rf {} +
work=$out/work
mkdir -p "$work" "$out/lib/pkgconfig"
for f in "$cache"/source/*.tar.*; do tar -xf "$f" -C "$work"; done
for p in "$here"/patches/*.patch; do patch --quiet -p1 -d "$work"/crun-* <"$p"; done

export SOURCE_DATE_EPOCH=0 LC_ALL=C
flags="-O2 -ffunction-sections -fdata-sections -fstack-protector-strong -D_FORTIFY_SOURCE=2 -ffile-prefix-map=$work=."
quiet() { nice "$@" >>"$out/log" 2>&1 || { tail -n 20 "$out/log" >&2; exit 1; }; }

# libseccomp and libcap, as archives.
cd "$work"/libseccomp-*
quiet ./configure --host=$triplet --enable-static --disable-shared --disable-python --prefix="$out" CFLAGS="$flags"
quiet make -C include install
quiet make -j2 -C src libseccomp.la
cp src/.libs/libseccomp.a "$out/lib/"
cd "$work"/libcap-*/libcap
quiet make CC="$triplet-gcc $flags" BUILD_CC=gcc AR=$triplet-ar RANLIB=$triplet-ranlib libcap.a
cp libcap.a "$out/lib/"
cp -r include/sys "$out/include/"

# libsystemd, for its client of D-Bus. The rest of systemd is configured, as its build
# wants that, and not built; libmount and libcrypt serve that rest, and are not needed.
printf 'Name: libcap\nDescription: capabilities\nVersion: 2.75\nLibs: -L%s -lcap\nCflags: -I%s\n' "$out/lib" "$out/include" >"$out/lib/pkgconfig/libcap.pc"
printf 'Name: mount\nDescription: not used\nVersion: 2.38\n' >"$out/lib/pkgconfig/mount.pc"
printf 'Name: libcrypt\nDescription: not used\nVersion: 4\n' >"$out/lib/pkgconfig/libcrypt.pc"
cat >"$work/cross" <<END
[binaries]
c = '$triplet-gcc'
ar = '$triplet-ar'
strip = '$triplet-strip'
objcopy = '$triplet-objcopy'
pkgconfig = 'pkg-config'
[properties]
pkg_config_libdir = '$out/lib/pkgconfig'
[host_machine]
system = 'linux'
cpu_family = '$cpu'
cpu = '$cpu'
endian = 'little'
END
cd "$work"/systemd-*
PATH=/usr/bin:$PATH quiet meson setup --cross-file "$work/cross" --buildtype=plain -Dc_args="$flags -I$out/include" -Dstatic-libsystemd=true -Dmode=release -Dsysvinit-path= -Dtests=false -Dman=false -Dversion-tag=252 \
	-Dopenssl=false -Dgcrypt=false -Dgnutls=false -Dp11kit=false -Dlibcryptsetup=false -Dlibcurl=false -Dzlib=false -Dbzip2=false -Dxz=false -Dlz4=false -Dzstd=false \
	-Dlibidn=false -Dlibidn2=false -Dfdisk=false -Dacl=false -Daudit=false -Dselinux=false -Dapparmor=false -Dpam=false -Dkmod=false -Delfutils=false -Dblkid=false build
quiet ninja -C build version.h
quiet ninja -C build libsystemd.a
cp build/libsystemd.a "$out/lib/"
mkdir "$out/include/systemd"
cp src/systemd/sd-*.h src/systemd/_sd-common.h "$out/include/systemd/"

# crun: its own build runs libtool 150 times; the sources are compiled as they are.
cd "$work"/crun-*
quiet ./configure --no-recursion --host=$triplet --enable-embedded-yajl --disable-criu --disable-dl --disable-libcrun \
	CFLAGS="$flags -I$out/include" LDFLAGS="-L$out/lib" LIBS="-lsystemd -lcap -lrt -lpthread"
printf '#ifndef GIT_VERSION\n#define GIT_VERSION "with islet'"'"'s patches"\n#endif\n' >git-version.h
ls src/*.c src/libcrun/*.c src/libcrun/blake3/*.c src/libcrun/handlers/*.c libocispec/src/ocispec/*.c libocispec/yajl/src/*.c |
	grep -v -e /validate.c -e /basic_test >files
quiet xargs -a files -P 2 -I{} sh -c 'o=$(echo {} | tr / _ ); exec '"$triplet-gcc $flags"' -include config.h -I. -Isrc -Ilibocispec/src -Ilibocispec/yajl/src -Ilibocispec/yajl/src/headers -I'"$out"'/include -DCRUN_LIBDIR=\"/usr/lib/crun\" -c -o "${o%.c}.o" {}'
quiet $triplet-gcc -static -Wl,--gc-sections -Wl,--build-id=none -o crun ./*.o -L"$out/lib" -lsystemd -lseccomp -lcap -lrt -lpthread -lm
$triplet-strip -o "$out/crun.new" crun
mkdir -p "$out/licenses"
cp COPYING "$out/licenses/crun"
cp "$work"/libseccomp-*/LICENSE "$out/licenses/libseccomp"
cp "$work"/libcap-*/License "$out/licenses/libcap"
cp "$work"/systemd-*/LICENSE.LGPL2.1 "$out/licenses/systemd"
cp libocispec/yajl/COPYING "$out/licenses/yajl"
cd "$out"
rm -rf work include lib
mv crun.new crun
echo "$out/crun"
