package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestDemoStops checks that the command `make stop` ends although the agent hangs. The command must report the objects that it could not
// remove. The agent in this test is a copy of the program sleep, which is suspended by SIGSTOP.
func TestDemoStops(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	top, state, run := t.TempDir(), filepath.Join(t.TempDir(), "state"), filepath.Join(t.TempDir(), "run")
	for _, dir := range []string{filepath.Join(top, "bin"), filepath.Join(top, "packaging/demo"), filepath.Join(state, "manifests"), run} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	islet, script := filepath.Join(top, "bin/islet"), filepath.Join(top, "packaging/demo/node.sh")
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{sleep: islet, "demo/node.sh": script} {
		data, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, data, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	agent := exec.Command(islet, "600")
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- agent.Wait() }()
	defer agent.Process.Kill()
	agent.Process.Signal(syscall.SIGSTOP)
	if err := os.WriteFile(filepath.Join(state, "agent.pid"), []byte(strconv.Itoa(agent.Process.Pid)+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	stop := exec.Command("sh", script, "stop")
	stop.Env = append(os.Environ(), "ISLET_DEMO_STATE="+state, "ISLET_DEMO_RUN="+run)
	began := time.Now()
	out, err := stop.CombinedOutput()
	if took := time.Since(began); took > 2*time.Minute {
		t.Errorf("it took %s", took)
	}
	// The sleeping program removes nothing, so the directories are left.
	if err == nil || !strings.Contains(string(out), "it is killed") || !strings.Contains(string(out), "not everything could be removed") {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := os.Stat(state); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil || agent.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the agent ended with %v", err)
	}
}

// TestMakeWithoutGo checks that make prints advice if sudo runs make and Go is not in the PATH of sudo.
func TestMakeWithoutGo(t *testing.T) {
	make, err := exec.LookPath("make")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ goal, want string }{{"run", `sudo env "PATH=$PATH" make run`}, {"help", "make run"}} {
		cmd := exec.Command(make, "-n", c.goal)
		if c.goal == "help" {
			cmd.Args = []string{make, c.goal}
		}
		cmd.Dir, cmd.Env = "..", []string{"PATH=/usr/bin:/bin"}
		if _, err := exec.LookPath("/usr/bin/go"); err == nil {
			t.Skip("Go is in the PATH of everybody")
		}
		if out, _ := cmd.CombinedOutput(); !strings.Contains(string(out), c.want) || strings.Contains(string(out), "not found") {
			t.Errorf("make %s: %s", c.goal, out)
		}
	}
}
