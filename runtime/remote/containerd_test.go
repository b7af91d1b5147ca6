package remote

import (
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The names of the suite's directories and cgroups begin with this prefix and the PID of the test.
const prefix = "islet-remote-"

// TestMain sets close-on-exec for all file descriptors that this process has inherited. Otherwise the daemons of the suite would inherit
// them. The Go runtime sets the flag only for files that it opens itself.
func TestMain(m *testing.M) {
	if err := unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil && err != unix.ENOSYS {
		fmt.Fprintln(os.Stderr, "close inherited files:", err)
		os.Exit(1)
	}
	if os.Getenv("ISLET_CONTAINERD") == "" {
		os.Exit(m.Run())
	}
	os.Exit(inOwnFolder(m.Run))
}

// inOwnFolder creates a temporary directory, calls the given function, and removes the directory. If this process is killed, the next run
// of the tests removes the directory.
func inOwnFolder(run func() int) int {
	sweep()
	own, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", prefix, os.Getpid()))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(own)
	os.Setenv("TMPDIR", own)
	return run()
}

// sweep removes the directories and cgroups that killed runs of the tests left behind. The processes of these runs have ended.
func sweep() {
	folders, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	groups, _ := filepath.Glob("/sys/fs/cgroup/" + prefix + "*")
	v1, _ := filepath.Glob("/sys/fs/cgroup/*/" + prefix + "*")
	for _, path := range append(append(folders, groups...), v1...) {
		var pid int
		if n, err := fmt.Sscanf(filepath.Base(path), prefix+"%d-", &pid); n != 1 || err != nil || syscall.Kill(pid, 0) == nil {
			continue
		}
		if strings.HasPrefix(path, "/sys/") {
			removeGroup(path)
		} else {
			os.RemoveAll(path)
		}
	}
}

// removeGroup removes a cgroup and its descendants.
func removeGroup(top string) error {
	var dirs []string
	filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	for i := len(dirs) - 1; i >= 0; i-- {
		if err := syscall.Rmdir(dirs[i]); err != nil {
			return fmt.Errorf("remove cgroup %s: %w", dirs[i], err)
		}
	}
	return nil
}

// startContainerd starts containerd from the directory dir in a new PID namespace and mount namespace. At the end of the test it kills
// containerd, which also ends the shims, containers and mounts in these namespaces. Then it removes the cgroups whose name equals the base
// name of the directory disk.
func startContainerd(t *testing.T, dir, disk, config string) {
	t.Helper()
	log, err := os.Create(filepath.Join(disk, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	// The shell has PID 1 in the namespace, so it reaps the shims.
	cmd := exec.Command("sh", "-c", `mount --make-rprivate / && mount -t proc proc /proc && mount -t tmpfs none /run || exit 1
"$0" --config "$1" &
wait`, filepath.Join(dir, "containerd"), config)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait() // returns when all processes of the namespace have ended
		if t.Failed() {
			tail, _ := os.ReadFile(log.Name())
			t.Logf("end of containerd's log:\n%s", tail[max(0, len(tail)-4<<10):])
		}
		groups, err := filepath.Glob("/sys/fs/cgroup/*/" + filepath.Base(disk))
		if err != nil {
			t.Error(err)
		}
		for _, g := range append(groups, "/sys/fs/cgroup/"+filepath.Base(disk)) {
			if err := removeGroup(g); err != nil {
				t.Error(err)
			}
		}
	})
}

// process converts a PID of containerd's PID namespace to a PID of the test's namespace. The cgroup of the process must be below parent.
func process(t testing.TB, parent string, pid int) int {
	t.Helper()
	self, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	level := len(numbers(self))
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range all {
		status, _ := os.ReadFile(p + "/status") // an error means that the process has ended
		cgroup, _ := os.ReadFile(p + "/cgroup")
		if n := numbers(status); len(n) > level && n[level] == strconv.Itoa(pid) && strings.Contains(string(cgroup), "/"+parent+"/") {
			outer, _ := strconv.Atoi(filepath.Base(p))
			return outer
		}
	}
	t.Fatalf("process %d of containerd was not found", pid)
	return 0
}

// numbers returns the PIDs of a process in its PID namespaces. The outermost namespace is first.
func numbers(status []byte) []string {
	_, rest, _ := strings.Cut(string(status), "\nNSpid:")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.Fields(line)
}
