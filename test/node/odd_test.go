package node

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// printScript prints the properties that a process inherits. It is a shell script, because the runtime of a Go program would change
// the ignored signals.
const printScript = `umask
while read -r key value; do case "$key" in Umask:|SigBlk:|SigIgn:|SigPnd:|NoNewPrivs:|Seccomp:|Cap*|Cpus_allowed_list:) echo "$key $value";; esac; done </proc/self/status
cat /proc/self/limits /proc/self/personality
set -- $(cat /proc/self/stat)
echo "nice ${19} priority ${18} realtime ${40} policy ${41}"
echo adj $(cat /proc/self/oom_score_adj)
for fd in /proc/self/fd/*; do echo "descriptor $fd $(readlink $fd)"; done
env
pwd`

// lookPod is a pod with a user other than root. It mounts the machine's programs.
const lookPod = `
    command: [/bin/sh, -c, "LOOK; cat /etc/resolv.conf /etc/hosts /etc/hostname >/dev/null && echo all are readable; echo end; exec sleep 1000000"]
    securityContext: {runAsUser: 4711, runAsGroup: 4711}
    env: [{name: PATH, value: /usr/bin:/bin}]
    volumeMounts:
MOUNTS
  volumes:
VOLUMES`

// looking returns the manifest of lookPod.
func looking() string {
	var mounts, volumes []string
	for _, dir := range []string{"bin", "lib", "lib64", "usr"} {
		if info, err := os.Stat("/" + dir); err == nil && info.IsDir() {
			mounts = append(mounts, fmt.Sprintf("    - {name: %s, mountPath: /%s, readOnly: true}", dir, dir))
			volumes = append(volumes, fmt.Sprintf("  - {name: %s, hostPath: {path: /%s}}", dir, dir))
		}
	}
	extra := strings.NewReplacer("LOOK", strings.Trim(strconv.Quote(printScript), `"`), "MOUNTS", strings.Join(mounts, "\n"), "VOLUMES",
		strings.Join(volumes, "\n")).Replace(lookPod)
	text := manifest("look", extra)
	return strings.Replace(text, `    args: [""]`+"\n", "", 1)
}

// TestOddStart checks that unusual state of the process that starts the agent, such as a shell with umask 077, does not affect containers
// or commands in them.
func TestOddStart(t *testing.T) {
	t.Parallel()
	usual, usualExec := lookFrom(t, 0)
	for _, umask := range []int{0o077, 0o027} {
		found, foundExec := lookFrom(t, umask)
		compare(t, fmt.Sprintf("umask %o: a container", umask), usual, found)
		compare(t, fmt.Sprintf("umask %o: a command", umask), usualExec, foundExec)
	}
	if !strings.Contains(usual, "all are readable") || !strings.HasPrefix(usual, "0022\n") {
		t.Errorf("a container of an agent that was started as usual has:\n%s", usual)
	}
}

// lookFrom runs the pod on a new machine. It returns the output of printScript in the container and in a command. If umask is not 0, the
// agent is started with that umask and other unusual properties.
func lookFrom(t *testing.T, umask int) (container, command string) {
	m := machine.New(t, "edge")
	m.OddUmask = umask
	m.InstallImage()
	m.Boot()
	m.Write("manifests/look.yaml", looking())
	m.StartAgent()
	m.WaitReady("look-edge")
	m.Await("the container has looked", func() bool {
		container = m.Islet("logs", "look-edge")
		return strings.HasSuffix(container, "\nend\n")
	})
	command = m.Islet("exec", "look-edge", "--", "/bin/sh", "-c", printScript)
	for pid := range m.ContainerProcesses() {
		if is, err := machine.IOPriority(pid); err != nil || is>>13 == 3 {
			t.Errorf("umask %o: process %d has the I/O priority %#x, %v", umask, pid, is, err)
		}
	}
	m.Remove("manifests/look.yaml")
	m.WaitReady()
	return container, command
}

// inodes matches the inode numbers of pipes and sockets.
var inodes = regexp.MustCompile(`\[\d+\]`)

func compare(t *testing.T, what, usual, found string) {
	t.Helper()
	a := strings.Split(inodes.ReplaceAllString(usual, "[]"), "\n")
	b := strings.Split(inodes.ReplaceAllString(found, "[]"), "\n")
	if len(a) != len(b) {
		t.Errorf("%s has:\n%s\nwant\n%s", what, found, usual)
		return
	}
	for i := range a {
		if a[i] != b[i] {
			t.Errorf("%s has %q, want %q", what, b[i], a[i])
		}
	}
}
