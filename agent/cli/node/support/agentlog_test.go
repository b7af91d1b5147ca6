package support

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
)

// TestAgentFile checks that the log of an agent without a service manager is found: it is the file that the agent's process has open.
func TestAgentFile(t *testing.T) {
	n, stop := servertest.Start(t)
	f, err := os.CreateTemp(t.TempDir(), "log")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.WriteString("first\nlast\n")
	c := &command.Tool{Socket: n.Socket}
	if text, err := readAgentFile(t.Context(), c, int(f.Fd())); string(text) != "first\nlast\n" || err != nil {
		t.Errorf("read %q, %v", text, err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if text, err := readAgentFile(t.Context(), c, int(w.Fd())); err == nil {
		t.Errorf("read %q from a pipe", text)
	}
	stop()
	if text, err := readAgentFile(t.Context(), c, int(f.Fd())); err == nil {
		t.Errorf("read %q without an agent", text)
	}
}

// TestAgentLogTail checks that only the whole lines at the end of a large log are read. A truncated line may contain the value of a secret
// without its name, so it could not be redacted.
func TestAgentLogTail(t *testing.T) {
	line := []byte("password=" + strings.Repeat("x", 100) + "\n")
	large := append(bytes.Repeat(line, 2*maxLogTail/len(line)+1), "end"...)
	checkTail := func(text []byte) {
		t.Helper()
		whole := bytes.TrimSuffix(text, []byte("end"))
		if len(whole) == len(text) || len(text) > maxLogTail || len(text) < maxLogTail-2*len(line) || len(whole)%len(line) != 0 {
			t.Errorf("%d bytes, from %.20q", len(text), text)
		}
	}
	file := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(file, large, 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := readLogFile(file)
	if err != nil {
		t.Fatal(err)
	}
	checkTail(text)
	var b tailBuffer
	b.Write(large)
	checkTail(b.wholeLines())
	var small tailBuffer
	small.Write([]byte("one\ntwo"))
	if err := os.WriteFile(file, []byte("one\ntwo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := readLogFile(file); err != nil || string(text) != "one\ntwo" || string(small.wholeLines()) != "one\ntwo" {
		t.Errorf("%q, %v, %q", text, err, small.wholeLines())
	}
	for range 5 {
		b.Write(bytes.Repeat([]byte("y"), maxLogTail))
	}
	b.Write([]byte("end"))
	if n := b.b.Len(); n > 2*maxLogTail+3 || !bytes.HasSuffix(b.b.Bytes(), []byte("yend")) {
		t.Errorf("%d bytes", n)
	}
}
