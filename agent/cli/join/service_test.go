package join

import (
	"os"
	"path/filepath"
	"testing"
)

// TestPlaces checks that advice about a flag names the file that contains the flag.
func TestPlaces(t *testing.T) {
	file := filepath.Join(t.TempDir(), "flags")
	const args = serviceArgs
	for _, c := range []struct {
		own, listed string
		set, remove string
	}{
		{"", "", args, args},
		{"--node-ip=192.0.2.1", "", args, args},
		{"", "# mine\n--node-ip=192.0.2.1\n", file, file},
		{"--node_ip", "--node-ip=192.0.2.1\n", args, args + " and " + file},
		{"--node-ips", "--node-ips=1\n", args, args},
		{"", "wrong\n", args, args},
	} {
		if err := os.WriteFile(file, []byte(c.listed), 0o600); err != nil {
			t.Fatal(err)
		}
		s := &service{func() ([]string, bool) { return []string{"--v=2", c.own}, true }, file}
		if got, want := s.set("--node-ip", "192.0.2.7"), "set --node-ip=192.0.2.7 in "+c.set; got != want {
			t.Errorf("%+v: %s", c, got)
		}
		if got, want := s.remove("--node-ip"), "remove --node-ip from "+c.remove; got != want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	if got := (&service{listed: "/nowhere"}).set("--node-ip", "x"); got != "set --node-ip=x in "+args {
		t.Error(got)
	}
}
