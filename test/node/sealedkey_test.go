package node

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/test/machine"
)

// startTPM starts an emulated TPM with its state in a directory. It listens at a socket on the machine's disk.
func startTPM(t *testing.T, m *machine.Machine, state string) (end func()) {
	t.Helper()
	socket := filepath.Join(m.Disk, "tpm")
	os.Remove(socket)
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	f, err := l.(*net.UnixListener).File()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("swtpm", "socket", "--tpm2", "--tpmstate", "dir="+state, "--server", "type=unixio,fd=3",
		"--flags", "not-need-init,startup-clear")
	c.ExtraFiles = []*os.File{f}
	if err := errors.Join(c.Start(), f.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	end = func() {
		c.Process.Kill()
		c.Wait()
	}
	t.Cleanup(end)
	return end
}

// showRecovery runs islet key seal on a terminal until it has shown the recovery key. It returns the process, the terminal and the key.
func showRecovery(t *testing.T, m *machine.Machine) (p *machine.Process, ours *os.File, recovery string) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	number, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err := errors.Join(err, unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0)); err != nil {
		t.Fatal(err)
	}
	theirs, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd := m.Command(m.Binary(), append([]string{"key", "seal", "--pcrs=7"}, flags(m, "/run/islet")...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	p, err = machine.StartProcess(cmd)
	if err := errors.Join(err, theirs.Close()); err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile(`(?s)\s(([0-9a-z]{4}-){7}[0-9a-z]{4})\s.*\. $`)
	for seen, buf := "", make([]byte, 4096); ; {
		n, err := ours.Read(buf)
		seen += string(buf[:n])
		if found := shown.FindStringSubmatch(seen); found != nil {
			return p, ours, found[1]
		}
		if err != nil {
			t.Fatalf("no recovery key in %q: %v", seen, err)
		}
	}
}

// TestSealedKey seals the key of a node's database to an emulated TPM while the agent runs. A command that is killed leaves the plain
// key. The agent then starts with the sealed key. With another TPM it does not start, and changes no file of the state directory. The
// recovery key makes the node usable again. The stored Secret is never lost, and the node's public key for sealed Secrets stays the same.
func TestSealedKey(t *testing.T) {
	t.Parallel()
	machine.RequireTools(t, "swtpm")
	m := machine.New(t, "edge")
	m.Boot()
	endTPM := startTPM(t, m, t.TempDir())
	m.Write("edge.yaml", fmt.Sprintf("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: %[1]s/cni\ntpm: {device: %[1]s/tpm}\n", m.Disk))
	m.Write("secret.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: wifi}\nstringData: {password: hush}\n")
	m.StartAgent()
	recipient := m.Islet("key", "recipient") // the agent makes the key
	m.Islet("apply", "-f", m.Disk+"/secret.yaml")
	file := filepath.Join(m.Disk, "state/store.key")
	read := func() []byte {
		t.Helper()
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	key := read()
	status := func() int {
		_, code := m.Try(append([]string{"key", "status"}, flags(m, "/run/islet")...)...)
		return code
	}
	has := func(when string) {
		t.Helper()
		if out := m.Islet("objects"); !strings.Contains(out, "wifi") {
			t.Errorf("%s, the Secret is lost: %s", when, out)
		}
		if out := m.Islet("bundle", "node"); !strings.Contains(out, "\nrecipient: "+recipient) {
			t.Errorf("%s, the node has another recipient than %s: %s", when, recipient, out)
		}
	}
	p, _, _ := showRecovery(t, m)
	kill(t, p.Pid)
	<-p.Ended
	if !bytes.Equal(read(), key) || status() != 0 {
		t.Error("the killed command has changed the key")
	}
	p, terminal, recovery := showRecovery(t, m)
	if _, err := io.WriteString(terminal, "\n"); err != nil {
		t.Fatal(err)
	}
	<-p.Ended
	sealed := read()
	if bytes.Contains(sealed, key) || !bytes.Contains(sealed, []byte(`"private"`)) || status() != 0 {
		t.Errorf("the key is not sealed: %q", sealed)
	}
	if left, err := filepath.Glob(file + ".*"); err != nil || len(left) > 0 {
		t.Error("files are left beside the key:", left, err)
	}
	if log := m.AgentLog(1 << 20); strings.Contains(log, recovery) {
		t.Error("the recovery key is in the log")
	}
	has("while the agent runs")
	m.Kill()
	m.StartAgent()
	has("with a sealed key")
	m.Stop()
	if out := m.Islet(append([]string{"key", "recipient"}, flags(m, "/run/islet")...)...); out != recipient {
		t.Errorf("without an agent, the recipient is %q instead of %q", out, recipient)
	}
	endTPM()
	endTPM = startTPM(t, m, t.TempDir())
	m.LaunchAgent()
	m.AwaitEnd()
	if !bytes.Equal(read(), sealed) || status() != 1 {
		t.Error("another TPM opens the key, or the key was changed")
	}
	endTPM()
	m.LaunchAgent()
	m.AwaitEnd()
	cmd := m.Command(m.Binary(), append([]string{"key", "unseal", "--recovery"}, flags(m, "/run/islet")...)...)
	cmd.Stdin = strings.NewReader(recovery + "\n")
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Equal(read(), key) {
		t.Fatalf("the recovery key does not open the key: %v, %s", err, out)
	}
	m.StartAgent()
	has("after the recovery")
}
