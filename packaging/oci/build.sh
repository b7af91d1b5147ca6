#!/bin/bash
# Builds the OCI runtime that islet ships, crun, from the sources of source.sh: one static
# program with seccomp, capabilities and the systemd cgroup driver, the same bytes from the
# same sources and compiler. It prints its path. What was built is kept in .cache/oci-build,
# or in $ISLET_OCI_CACHE, which several checkouts may share. Beside it are licenses, and parts:
# what is linked into it, as "name, version, licence, SHA-256 of the source" with tabs between.
# The C library is the one of sources, too, and not the compiler's: that of Debian's cross compilers
# gets no security fixes. That of riscv64 is compiled here, because Debian 12 has none.
#   build.sh GOARCH           amd64, arm64, arm (ARMv7, hard float) or riscv64
#   build.sh GOARCH cached    fails if it was not built yet
#   build.sh GOARCH run       for this machine alone: without libsystemd, and so without the systemd
#                             cgroup driver, and with the C library of this machine. It needs gcc and make,
#                             and half a minute; nothing is installed
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
command -v $triplet-gcc >/dev/null || { echo "oci: $triplet-gcc is not installed: it is in gcc, or for another architecture: packaging/deps.sh oci-cross" >&2; exit 1; }
kind='' libc='' parts="crun libseccomp libcap2 systemd"
if [ "${2:-}" = run ]; then
	kind=run- libc=$($triplet-gcc -print-file-name=libc.a) parts="crun libseccomp libcap2"
else
	parts="$parts $(awk -v arch=":$1" 'substr($1, index($1, ":")) == arch { print $1 }' "$here/sources" | xargs)"
	[[ $parts = *glibc:* ]] || parts="$parts glibc"
fi
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
key=$({ cat "$here"/build.sh "$here"/sources "$here"/patches/*; $triplet-gcc --version; [ -z "$libc" ] || sha256sum <"$libc"; } | sha256sum | cut -c1-16)
out=$cache/$kind$1-$key
if [ -x "$out/crun" ]; then
	echo "$out/crun"
	exit
fi
[ "${2:-}" != cached ] || exit 1
# shellcheck disable=SC2086 # a list of names
"$here/source.sh" "$cache/source" $parts >&2
steps=3 step=0
[ -n "$kind" ] || steps=4
[[ $parts != *glibc ]] || steps=5
say() { step=$((step + 1)); echo "building the OCI runtime for $triplet: [$step/$steps] $1" >&2; }
find "$cache" -mindepth 1 -maxdepth 1 -type d -name "$kind$1-*" -exec rm -rf {} +
work=$out/work
mkdir -p "$work" "$out/lib/pkgconfig"

# field NAME N prints a word of each line of that name in sources: its version, file or checksum.
field() { awk -v name="$1" -v n="$2" '$1 == name { print $n }' "$here/sources"; }

# unpack NAME unpacks the source of that name. What a machine with a compiler may lack, apt has.
unpack() {
	local file
	for file in $(field "$1" 3); do
		file=$cache/source/$file
		case $file in
		*.deb) dpkg-deb -x "$file" "$work/root" ;;
		*.xz) if command -v xz >/dev/null; then xz -dc "$file"; else /usr/lib/apt/apt-helper cat-file "$file"; fi | tar -xf - -C "$work" ;;
		*) tar -xf "$file" -C "$work" ;;
		esac
	done
}
for name in $parts; do unpack "$name"; done
for p in "$here"/patches/*.patch; do
	if command -v patch >/dev/null; then
		patch --quiet -p1 -d "$work"/crun-* <"$p"
	else
		(cd "$work"/crun-* && GIT_CEILING_DIRECTORIES=$work git apply -p1 "$p")
	fi
done

export SOURCE_DATE_EPOCH=0 LC_ALL=C
unset MAKEFLAGS MFLAGS MAKELEVEL # variables of the make that runs this, such as VERSION
flags="-O2 -ffunction-sections -fdata-sections -fstack-protector-strong -D_FORTIFY_SOURCE=2 -ffile-prefix-map=$work=."

# The compiler searches headers, the start of a program, and libraries in its own directory and in
# the unpacked C library, and nowhere else. Everything is linked statically, also the tests of configure.
cc=$triplet-gcc own=$(dirname "$($triplet-gcc -print-libgcc-file-name)")
if [ -z "$kind" ]; then
	cc=$work/$triplet-gcc
	cat >"$cc" <<END
#!/bin/sh
exec $triplet-gcc -static --sysroot='$work/root' -B'$work/root/usr/lib/$triplet' -L'$work/root/usr/lib/$triplet' \
	-nostdinc -isystem '$own/include' -isystem '$work/root/usr/include/$triplet' -isystem '$work/root/usr/include' "\$@"
END
	chmod +x "$cc"
fi
quiet() { nice "$@" >>"$out/log" 2>&1 || { tail -n 20 "$out/log" >&2; exit 1; }; }

# glibc compiles the C library with Debian's patches, and installs headers and archives as Debian's package
# does. Shared libraries are not compiled. The first make generates the headers that only their rules generate.
glibc() {
	local patch options build=$work/libc lib=$work/root/usr/lib/$triplet
	say "the C library, which takes minutes"
	cd "$work"/glibc-*
	sed -e 's/[[:space:]]*#.*//' -e '/^$/d' ../debian/patches/series | while read -r patch options; do
		quiet patch --quiet "${options:--p1}" -i "../debian/patches/$patch"
	done
	mkdir -p "$build" "$lib"
	cd "$build"
	quiet "$work"/glibc-*/configure --host=$triplet --build="$(gcc -dumpmachine)" --prefix=/usr --with-headers="$work/root/usr/$triplet/include" CC=$triplet-gcc \
		CFLAGS="-O2 -ffile-prefix-map=$work=." --enable-kernel=4.15 --enable-stack-protector=strong --disable-werror --disable-profile --disable-crypt --disable-timezone-tools --without-selinux
	quiet make -j2 object-suffixes=.o csu/subdir_lib
	quiet make -j2 build-shared=no lib
	quiet make -j2 build-shared=no math/others
	quiet make build-shared=no install-bootstrap-headers=yes install-headers install_root="$work/root"
	cp libc.a math/libm.a csu/crt1.o csu/crti.o csu/crtn.o "$lib/"
	for empty in anl dl pthread rt util; do quiet $triplet-ar cr "$lib/lib$empty.a"; done
	cp -r "$work/root/usr/$triplet/include/." "$work/root/usr/include/"
}
[[ $parts != *glibc ]] || glibc

# libseccomp and libcap, as archives. What gperf would make is in the source, and no Python is run.
say libseccomp
[ -z "$kind" ] || export GPERF=true PYTHON=true
cd "$work"/libseccomp-*
quiet ./configure --host=$triplet --enable-static --disable-shared --disable-python --prefix="$out" CC="$cc" CFLAGS="$flags"
quiet make -C include install
quiet make -j2 -C src libseccomp.la
cp src/.libs/libseccomp.a "$out/lib/"
say libcap
cd "$work"/libcap-*/libcap
quiet make CC="$cc $flags" BUILD_CC=gcc AR=$triplet-ar RANLIB=$triplet-ranlib libcap.a
cp libcap.a "$out/lib/"
cp -r include/sys "$out/include/"

# libsystemd, for its client of D-Bus. The rest of systemd is configured, as its build
# wants that, and not built; libmount and libcrypt serve that rest, and are not needed.
libsystemd() {
	printf 'Name: libcap\nDescription: capabilities\nVersion: 2.75\nLibs: -L%s -lcap\nCflags: -I%s\n' "$out/lib" "$out/include" >"$out/lib/pkgconfig/libcap.pc"
	printf 'Name: mount\nDescription: not used\nVersion: 2.38\n' >"$out/lib/pkgconfig/mount.pc"
	printf 'Name: libcrypt\nDescription: not used\nVersion: 4\n' >"$out/lib/pkgconfig/libcrypt.pc"
	cat >"$work/cross" <<END
[binaries]
c = '$cc'
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
}

without=--disable-systemd library=''
if [ -z "$kind" ]; then
	say "libsystemd, which takes longest"
	libsystemd
	without='' library=-lsystemd
fi

say crun
# crun: its own build runs libtool 150 times; the sources are compiled as they are.
cd "$work"/crun-*
quiet ./configure --no-recursion --host=$triplet --enable-embedded-yajl --disable-criu --disable-dl --disable-libcrun $without \
	CC="$cc" CFLAGS="$flags -I$out/include" LDFLAGS="-L$out/lib" LIBS="$library -lcap -lrt -lpthread"
printf '#ifndef GIT_VERSION\n#define GIT_VERSION "with islet'"'"'s patches"\n#endif\n' >git-version.h
# shellcheck disable=SC2010 # names of crun's sources, which have no blank
ls src/*.c src/libcrun/*.c src/libcrun/blake3/*.c src/libcrun/handlers/*.c libocispec/src/ocispec/*.c libocispec/yajl/src/*.c |
	grep -v -e /validate.c -e /basic_test >files
# shellcheck disable=SC2016 # the inner shell's
quiet xargs -a files -P 2 -I{} sh -c 'o=$(echo {} | tr / _ ); exec '"$cc $flags"' -include config.h -I. -Isrc -Ilibocispec/src -Ilibocispec/yajl/src -Ilibocispec/yajl/src/headers -I'"$out"'/include -DCRUN_LIBDIR=\"/usr/lib/crun\" -c -o "${o%.c}.o" {}'
quiet "$cc" -static -Wl,--gc-sections -Wl,--build-id=none -Wl,-Map=map -o crun ./*.o -L"$out/lib" $library -lseccomp -lcap -lrt -lpthread -lm
if [ -z "$kind" ]; then
	others=$(awk '$1 == "LOAD" { print $2 }' map | xargs realpath | grep -v -e "^$(realpath "$out")/" -e "^$(realpath "$own")/" || true)
	[ -z "$others" ] || { echo "oci: these files of the machine were linked, and not those of $here/sources: $others" >&2; exit 1; }
fi
$triplet-strip -o "$out/crun.new" crun

# linked FILE prints the package that a file of the compiler's is of, and the version of its source:
# those of cross compilers have sources of their own, but the version of the library they are built
# from, with "cross" and a number behind it.
linked() {
	local package
	package=$(dpkg-query -S "$(realpath "$1")" | cut -d : -f 1)
	dpkg-query -W -f '${Package} ${source:Version} ${Version}\n' "$package" 2>/dev/null |
		awk 'NR == 1 { print $1, sub(/cross[0-9]*$/, "", $3) ? $3 : $2 }'
}
licences() {
	mkdir -p "$out/licenses"
	cp COPYING "$out/licenses/crun"
	cp libocispec/COPYING "$out/licenses/libocispec"
	cp libocispec/yajl/COPYING "$out/licenses/yajl"
	cp "$work"/libseccomp-*/LICENSE "$out/licenses/libseccomp"
	cp "$work"/libcap-*/License "$out/licenses/libcap"
	cp "$work"/systemd-*/LICENSE.LGPL2.1 "$out/licenses/LGPL-2.1" # crun's library's as well
	libgcc=$(linked "$($triplet-gcc -print-libgcc-file-name)")
	cp "$work"/debian/copyright "$out/licenses/glibc" 2>/dev/null || cp "$work/root/usr/share/doc/libc6-dev/copyright" "$out/licenses/glibc"
	cp "/usr/share/doc/${libgcc% *}/copyright" "$out/licenses/libgcc"
	part() { printf '%s\t%s\t%s\t%s\n' "$@"; }
	from() { field "$1" 4; }
	version() { basename "$work/$1"-* | sed 's/.*-//'; }
	{
		part crun "$(version crun)" 'GPL-2.0-or-later AND LGPL-2.1-or-later' "$(from crun)"
		part libocispec "of crun $(version crun)" 'GPL-3.0-or-later AND Apache-2.0' "$(from crun)" # with an exception for what it makes
		part yajl "of crun $(version crun)" ISC "$(from crun)"
		part blake3 "$(sed -n 's/^#define BLAKE3_VERSION_STRING "\(.*\)"/\1/p' src/libcrun/blake3/blake3.h)" 'CC0-1.0 OR Apache-2.0' "$(from crun)"
		part libseccomp "$(version libseccomp)" LGPL-2.1-only "$(from libseccomp)"
		part libcap "$(version libcap)" 'BSD-3-Clause OR GPL-2.0-only' "$(from libcap2)"
		part libsystemd "$(version systemd)" LGPL-2.1-or-later "$(from systemd)"
		part glibc "$(field glibc 2 | head -n 1)" LGPL-2.1-or-later -
		part libgcc "${libgcc#* }" 'GPL-3.0-or-later WITH GCC-exception-3.1' -
	} >"$out/parts"
}
[ -n "$kind" ] || licences
cd "$out"
rm -rf work include lib
mv crun.new crun
echo "$out/crun"
