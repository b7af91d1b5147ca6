package process

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestServiceManager(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	m := TakeServiceManager()
	if v, set := os.LookupEnv("NOTIFY_SOCKET"); set {
		t.Errorf("OCI runtimes would inherit %q", v)
	}
	if err := m.Notify("READY=1"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 64)
	if err := l.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if n, err := l.Read(b); err != nil || string(b[:n]) != "READY=1" {
		t.Errorf("got %q, %v", b[:n], err)
	}
	if err := TakeServiceManager().Notify("READY=1"); err != nil {
		t.Errorf("an error without a service manager: %v", err)
	}
}
