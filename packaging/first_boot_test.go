package packaging

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// curl stands for a link that breaks: it continues a download by one more part of the file, and fails if that is not the last one. The file
// "part" has the size of a part. The file "answer" has the HTTP status of a server that rejects the request.
const curl = `#!/bin/sh
while [ $# -gt 1 ]; do
	[ "$1" != -o ] || to=$2
	shift
done
if [ -e "$BOARD/answer" ]; then
	cat "$BOARD/answer"
	exit 22
fi
have=$(stat -c %s "$to" 2>/dev/null || echo 0)
tail -c +$((have + 1)) "$BOARD/mirror" | head -c "$(cat "$BOARD/part")" >>"$to" || exit
echo "$have" >>"$BOARD/downloads"
[ "$(stat -c %s "$to")" -ge "$(stat -c %s "$BOARD/mirror")" ] || exit 56
`

// firstBoot runs a script on a board at its first boot. The script calls first-boot.sh by the function "boot" with its arguments. The board
// has no init and no memory cgroup; $BOARD is a directory with the files of the board. The program systemctl only prints its arguments.
func firstBoot(t *testing.T, script string, files map[string]string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	board := t.TempDir()
	for name, text := range map[string]string{"bin/curl": curl, "bin/systemctl": "#!/bin/sh\necho systemctl \"$@\"\n",
		"bin/cloud-init": "#!/bin/sh\necho cloud-init \"$@\" >&2\n", "proc/cgroups": "memory 1 1 0\n", "proc/cmdline": "console=tty1\n", "part": "1000000\n"} {
		write(t, filepath.Join(board, name), text, 0o755)
	}
	for name, text := range files {
		write(t, filepath.Join(board, name), text, 0o644)
	}
	installer, err := filepath.Abs("cloud-init/first-boot.sh")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "-m", "-p", "-f", "--mount-proc", "sh", "-c", `for d in /usr/local /etc /opt /var /run /boot; do mount -t tmpfs none $d || exit; done
		mkdir -p /var/tmp /boot/firmware /etc/systemd/system
		boot() { sh `+installer+` "$@"; echo "exit code $?"; }
		`+script)
	awk, err := exec.LookPath("awk") // a symlink through /etc on some systems
	if err == nil {
		awk, err = filepath.EvalSymlinks(awk)
	}
	if err == nil {
		err = os.Symlink(awk, filepath.Join(board, "bin/awk"))
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := try(cmd, "BOARD="+board, "PATH="+filepath.Join(board, "bin")+":"+os.Getenv("PATH"), "ISLET_PROC="+filepath.Join(board, "proc"),
		"ISLET_CGROUP=/nowhere", "TMPDIR=", "DESTDIR=")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return out
}

// TestFirstBootLink downloads the archive over a link that breaks. Each attempt continues the last one. If a power cut has spoiled a part,
// the download starts anew. An installation that fails later downloads nothing again.
func TestFirstBootLink(t *testing.T) {
	archive := packed(t, unpacked(t, "one"))
	data, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	mirror := func(sum string) string {
		return fmt.Sprintf(" https://mirror.example.com/%s %s\n", filepath.Base(archive), sum)
	}
	from := mirror(fmt.Sprintf("%x", sha256.Sum256(data)))
	files := map[string]string{"mirror": string(data), "part": fmt.Sprintln(len(data)/3 + 1)}
	out := firstBoot(t, "boot"+from+"boot"+from+": >/usr/local/lib; boot"+from+"rm /usr/local/lib; boot"+from+
		"/usr/local/bin/islet; find /var/lib /var/tmp -mindepth 1; tr '\\n' ' ' <$BOARD/downloads", files)
	third := len(data)/3 + 1
	want := fmt.Sprintf("0 %d %d ", third, 2*third)
	if strings.Count(out, "exit code 1\n") != 2 || strings.Count(out, "exit code 3\n") != 1 || !strings.Contains(out, "exit code 0\none\n") ||
		!strings.HasSuffix(out, want) || strings.Contains(out, "/var/") {
		t.Errorf("want %q at the end of\n%s", want, out)
	}

	// A power cut leaves the unpacked archive. The next run removes it.
	cut := "mkdir -p /var/lib/islet-first-boot/islet.abcdef; "
	out = firstBoot(t, cut+"boot"+from+"ls /var/lib/islet-first-boot", files)
	if strings.Contains(out, "abcdef") || !strings.Contains(out, "exit code 1\n") {
		t.Error(out)
	}
	spoil := "head -c 100 /dev/zero >$(find /var/lib -name 'islet-9*'); "
	out = firstBoot(t, "boot"+from+spoil+"echo 9999999 >$BOARD/part; boot"+from+"boot"+from, files)
	if strings.Count(out, "exit code 1\n") != 2 || !strings.HasSuffix(out, "exit code 0\n") {
		t.Error(out)
	}
	// An error of the server leaves the part. A whole file that is wrong is downloaded once more, and then only at the next boot, also over
	// a link that never delivers the file in one run.
	const size = "stat -c %s $(find /var/lib -name 'islet-9*'); "
	out = firstBoot(t, "boot"+from+"echo 503 >$BOARD/answer; boot"+from+size+"echo 416 >$BOARD/answer; boot"+from+"rm $BOARD/answer; boot"+
		from+spoil+"boot"+from+"boot"+from+"boot"+from, files)
	if want := "exit code 1\nexit code 1\n" + fmt.Sprintln(third) + "exit code 1\nexit code 1\nexit code 1\nexit code 1\nexit code 3\n"; codes(out) != want {
		t.Errorf("want %s of\n%s", want, out)
	}
	// A server that sends too much is not asked again before the next boot.
	if out := firstBoot(t, "echo 200000000 >$BOARD/part; truncate -s 200M $BOARD/mirror; boot"+from+"find /var/lib -name 'islet-9*'",
		files); codes(out) != "exit code 3\n" {
		t.Error(out)
	}
	// Only another boot repeats what no repetition can change.
	files["part"] = "9999999\n"
	for says, args := range map[string]string{"does not have the SHA-256 0": mirror("0"), "is missing": mirror(""), "only https": " http://mirror/x 0"} {
		if out := firstBoot(t, "boot"+args, files); !strings.HasSuffix(out, "exit code 3\n") || !strings.Contains(out, says) {
			t.Errorf("%q: %s", args, out)
		}
	}
}

// codes returns the lines of an output that are exit codes or sizes.
func codes(out string) string {
	var b strings.Builder
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "exit code ") || strings.Trim(line, "0123456789\n") == "" {
			b.WriteString(line)
		}
	}
	return b.String()
}

// TestFirstBootReboots checks that the machine reboots if the kernel does not have the words of its command line yet, also if an earlier
// run has written them and failed. The unit is disabled before. A kernel with the words causes no reboot.
func TestFirstBootReboots(t *testing.T) {
	data, err := os.ReadFile(packed(t, unpacked(t, "one")))
	if err != nil {
		t.Fatal(err)
	}
	const name, done, mark = "islet-9.0.0+x-linux-amd64.tar.gz", "exit code 0\n", "ls /run/islet-reboot 2>/dev/null || true"
	files := map[string]string{name: string(data)}
	const begin = "cp $BOARD/" + name + " /boot/firmware/; echo console=tty1 >/boot/firmware/cmdline.txt; " +
		": >/etc/systemd/system/islet-first-boot.service\n"
	// A file is in the place of a directory, so the installation fails after it has changed the command line.
	const fails = "mkdir -p /usr/local/bin; : >/usr/local/lib; boot --reboot " + name + "; rm /usr/local/lib; cat /boot/firmware/cmdline.txt; "
	out := firstBoot(t, begin+fails+"test ! -e /run/islet-reboot && boot --reboot "+name+"; "+mark, files)
	first, second, _ := strings.Cut(out, "exit code 3\n")
	disabled := strings.Index(second, "systemctl --quiet disable islet-first-boot.service")
	reboots := strings.Index(second, "systemctl --no-block reboot")
	if strings.Contains(first, "systemctl") || !strings.HasPrefix(second, "console=tty1 cgroup_enable=memory") || disabled < 0 ||
		reboots < disabled || !strings.HasSuffix(second, done+"/run/islet-reboot\n") {
		t.Error(out)
	}
	files["proc/cmdline"] = "console=tty1 cgroup_enable=memory cgroup_memory=1\n"
	if out := firstBoot(t, begin+"boot --reboot "+name+"; "+mark, files); strings.Contains(out, "no-block") ||
		!strings.HasSuffix(out, done) {
		t.Error(out)
	}
	delete(files, "proc/cmdline")
	out = firstBoot(t, begin+"boot "+name+"; "+mark, files)
	if strings.Contains(out, "no-block") || !strings.HasSuffix(out, done+"/run/islet-reboot\n") {
		t.Error(out)
	}
	// Beside another node agent nothing is installed, also without a start.
	other := "cp /bin/sleep /run/k3s; /run/k3s 60 & until grep -qx k3s /proc/$!/comm; do :; done\n"
	for _, option := range []string{"", "--no-start ", "--reboot "} {
		out := firstBoot(t, other+begin+"boot "+option+name+"; find /usr/local -type f", files)
		if !strings.HasSuffix(out, "exit code 3\n") || !strings.Contains(out, "k3s (process ") {
			t.Errorf("%s: %s", option, out)
		}
	}
	// An islet that is there already is not replaced, but one whose service is not enabled was not completed.
	const newer = "mkdir -p /usr/local/bin; echo newer >/usr/local/bin/islet; "
	out = firstBoot(t, newer+begin+"boot --reboot "+name+"; cat /usr/local/bin/islet", files)
	if !strings.HasSuffix(out, "disable islet-first-boot.service\n"+done+"newer\n") {
		t.Error(out)
	}
	const disabledUnit = "printf '#!/bin/sh\\n! [ \"$2\" = is-enabled ]\\n' >$BOARD/bin/systemctl; "
	out = firstBoot(t, newer+disabledUnit+begin+"boot --reboot "+name+"; /usr/local/bin/islet", files)
	if !strings.HasSuffix(out, done+"one\n") {
		t.Error(out)
	}
}
