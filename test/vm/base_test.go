package vm

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/test/machine"
)

// stub is a script that replaces the programs that base.sh calls. It fails if its command contains FAIL. Otherwise it creates the files
// that base.sh expects.
const stub = `#!/bin/bash
set -eu
command="${0##*/} $*"
if [ -n "$FAIL" ] && [[ $command == *"$FAIL"* ]]; then
	[ -z "${PRECIOUS:-}" ] || { mkdir -p "$1/precious"; /bin/mount --bind "$PRECIOUS" "$1/precious"; }
	echo "stub: $command: failed" >&2
	exit 1
fi
case $command in
"mount -t binfmt_misc "*)
	echo stale >"${!#}/islet-arm64" ;;
debootstrap*)
	root=${!#}
	if [ -e "$root/../binfmt/register" ] && [ "$(cat "$root/../binfmt/islet-arm64")" != -1 ]; then
		echo "stub: register: file exists" >&2
		exit 1
	fi
	mkdir -p "$root"/{boot,debootstrap,etc/init.d,etc/systemd/system,var/cache/apt/archives,usr/share}
	touch "$root"/boot/{vmlinuz,initrd.img}-1 "$root/debootstrap/base"
	[ "$FAIL" = "no package" ] || touch "$root"/var/cache/apt/archives/apparmor_1.deb ;;
mke2fs*)
	while [ "$1" != -d ]; do shift; done
	echo image >"$3" ;;
esac
`

// TestBase checks that base.sh does not complete a base image after a failed step. The next run must build the image. The leftovers of a
// killed run must not matter. When base.sh deletes a failed base, it must not delete files in file systems that are mounted below it.
func TestBase(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounts of its own, which base.sh has, need root")
	}
	programs := t.TempDir()
	for _, name := range []string{"debootstrap", "chroot", "mke2fs", "mount", "qemu-aarch64-static"} {
		if err := os.WriteFile(filepath.Join(programs, name), []byte(stub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	precious := t.TempDir()
	if err := unix.Mount("precious", precious, "tmpfs", 0, "size=1m"); err != nil { // otherwise the directory is on the same file system
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(precious, unix.MNT_DETACH) })
	if err := os.WriteFile(filepath.Join(precious, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for fail, says := range map[string]string{
		"":                       "",
		"debootstrap":            "debootstrap --foreign",
		"second-stage":           "--second-stage: failed",
		"no package":             "apparmor_*.deb",
		"--purge":                "dpkg --purge apparmor: failed",
		"enable payload.service": "enable payload.service: failed",
		"mask":                   "mask getty@tty1.service",
		"rc-update":              "rc-update -q add payload",
		"mke2fs":                 "mke2fs -q",
	} {
		for _, arch := range []string{"amd64", "arm64"} {
			if fail == "rc-update" && arch != "amd64" {
				continue // the architecture has no OpenRC
			}
			dir := t.TempDir()
			run := func(fail, precious string) (stdout, stderr string, err error) {
				var out, bad strings.Builder
				c := exec.Command("bash", filepath.Join(machine.Root(t), "test/vm/base.sh"), dir, arch)
				c.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "FAIL="+fail, "PRECIOUS="+precious)
				c.Stdout, c.Stderr = &out, &bad
				err = c.Run()
				return strings.TrimSpace(out.String()), bad.String(), err
			}
			mounted := ""
			if fail == "--purge" {
				mounted = precious
			}
			stdout, stderr, err := run(fail, mounted)
			if (err == nil) != (fail == "") || !strings.Contains(stderr, says) || (stdout == "") != (fail != "") {
				t.Errorf("%s, %q fails: %v, prints %q, standard error is %q, not %q", arch, fail, err, stdout, stderr, says)
			}
			if whole, _ := filepath.Glob(dir + "/*/complete"); (len(whole) == 1) != (fail == "") {
				t.Errorf("%s, %q fails: the base %q is complete", arch, fail, whole)
			}
			if _, err := os.Stat(filepath.Join(precious, "file")); err != nil {
				t.Fatalf("%s, %q fails: %v", arch, fail, err)
			}
			stdout, stderr, err = run("", "")
			if err != nil {
				t.Errorf("%s, after %q failed: %v, %s", arch, fail, err, stderr)
				continue
			}
			binfmt := filepath.Join(stdout, "binfmt")
			if arch == "arm64" {
				if entry, err := os.ReadFile(filepath.Join(binfmt, "islet-arm64")); string(entry) != "-1\n" {
					t.Errorf("after %q failed: the kernel still knows the emulator: %q, %v", fail, entry, err)
				}
				os.RemoveAll(binfmt)
			}
			made, _ := filepath.Glob(stdout + "/*")
			for i := range made {
				made[i] = filepath.Base(made[i])
			}
			if got := strings.Join(made, " "); got != "base.img complete initrd.img log vmlinuz" {
				t.Errorf("%s, after %q failed: the files are %q", arch, fail, got)
			}
		}
	}
}
