package backups

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/k3s"
)

// TestOlderInUse restores a node whose bundle is older than one that has failed. The restore prints the command that applies this bundle
// again.
func TestOlderInUse(t *testing.T) {
	t.Parallel()
	record := `{"format":1,"highest":{"kiosk":3},"failed":["sha256:3"],"current":{"name":"kiosk","number":2}}`
	for _, bundles := range []bool{false, true} {
		d := newDesk(t)
		if err := os.WriteFile(d.make("state/bundle.json"), []byte(record), 0o600); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(filepath.Dir(d.key), "f")
		args := []string{file, "--to=" + d.to}
		if bundles {
			args = append(args, "--bundles")
		}
		d.run(0, "backup", args...)
		d.empty()
		out := d.run(0, "restore", file, "--key="+d.key, "--dry-run") + d.run(0, "restore", file, "--key="+d.key)
		if got := strings.Count(out, "--older"); got != map[bool]int{false: 2, true: 0}[bundles] {
			t.Errorf("with bundles %v: %s", bundles, out)
		}
	}
}

// TestDryRunNames checks that a dry run names the files that --set-aside would rename, and none on a new board.
func TestDryRunNames(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	file := filepath.Join(filepath.Dir(d.key), "f")
	d.run(0, "backup", file, "--to="+d.to)
	for _, isNew := range []bool{false, true} {
		if isNew {
			d.empty()
		}
		out := d.run(0, "restore", file, "--key="+d.key, "--set-aside", "--dry-run")
		for _, name := range []string{"islet.db", "store.key"} {
			if got := strings.Contains(out, d.dir+"/state/"+name+"\n"); got == isNew {
				t.Errorf("a new board: %v: %s is named: %v: %s", isNew, name, got, out)
			}
		}
	}
}

// TestJoinRuns checks that islet restore changes nothing while islet join or islet setup runs, and that no backup is made while islet join
// runs. An empty directory that a failed islet join has left does not prevent the restore.
func TestJoinRuns(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	file := filepath.Dir(d.key) + "/edge.backup"
	root := k3s.Root(d.dir + "/state")
	lock := func() io.Closer {
		l, err := k3s.Lock(root)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	join := lock()
	d.run(1, "backup", file, "--to="+d.to)
	join.Close()
	d.run(0, "backup", file, "--to="+d.to)
	d.empty()
	join = lock()
	if out := d.run(1, "restore", file, "--key="+d.key); !strings.Contains(out, "islet join") || len(d.files()) > 0 {
		t.Error(out, d.files())
	}
	join.Close()
	setup, err := k3s.LockState(d.dir + "/state")
	if err != nil {
		t.Fatal(err)
	}
	if out := d.run(1, "restore", file, "--key="+d.key); !strings.Contains(out, "islet setup") || len(d.files()) > 0 {
		t.Error(out, d.files())
	}
	setup.Close()
	if out := d.run(0, "restore", file, "--key="+d.key); !strings.Contains(out, "is restored") {
		t.Error(out)
	}
	lock().Close()
}

// TestStarts checks which agents may start on a board: the agent of the service and, if the command line has flags of an agent, also an
// agent with these flags. Both also have the flags of the flags file, which their own flags override.
func TestStarts(t *testing.T) {
	t.Parallel()
	board := fstest.MapFS{"etc/islet/flags": {Data: []byte("--hostname-override=listed\n--state-dir=/listed\n")}, "service": {Data: []byte("--state-dir=/service")}}
	bare := fstest.MapFS{"service": board["service"]}
	env := Env{ServiceFlags: func(host fs.FS) ([]string, bool) {
		text, err := fs.ReadFile(host, "service")
		return strings.Fields(string(text)), err == nil
	}}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		board fstest.MapFS
		flags []string
		want  string
	}{
		{board, nil, "/service listed"},
		{bare, nil, "/service " + strings.ToLower(host)},
		{board, []string{"--hostname-override=given"}, "/service listed, /listed given"},
		{bare, []string{"--hostname-override=given", "--state-dir=/given"}, "/service " + strings.ToLower(host) + ", /given given"},
		{fstest.MapFS{"etc/islet/flags": board["etc/islet/flags"]}, []string{"--root-dir=/x"}, "/listed listed"},
		{fstest.MapFS{"service": {Data: []byte("--wrong")}}, []string{"--hostname-override=given", "--state-dir=/given"}, "/given given"},
		{fstest.MapFS{"service": {Data: []byte("--wrong")}}, nil, "error"},
		{fstest.MapFS{"etc/islet/flags": {Data: []byte("wrong")}}, nil, "error"},
		{fstest.MapFS{"etc/islet/flags": {Data: bytes.Repeat([]byte("\n"), config.MaxFlagsFile+1)}}, nil, "error"}, // a bomb
	} {
		list, err := env.starts(&options{agent: c.flags}, c.board)
		var got []string
		for _, i := range list {
			got = append(got, i.Dirs.State+" "+i.Node)
		}
		if err != nil {
			got = append(got, "error")
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%q instead of %q, %v", text, c.want, err)
		}
	}
}
