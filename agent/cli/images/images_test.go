package images_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/internal/podtest"
)

func TestImages(t *testing.T) {
	n, _ := startNode(t)
	if got := run(t, n, "", "images", "ls", "-o", "yaml"); got.Code != 0 || !strings.Contains(got.Out, "- localhost/web:1\n") {
		t.Errorf("as YAML: %+v", got)
	}
	archive := filepath.Join(n.Dir, "web.tar")
	os.WriteFile(archive, []byte("localhost/new:1\n"+strings.Repeat("x", 4<<20)), 0o600)
	got := run(t, n, "", "images", "import", archive)
	if got.Code != 0 || !strings.HasPrefix(got.Out, "localhost/new:1") || !strings.Contains(got.Err, "web.tar: unpacking\n") {
		t.Errorf("import: %+v", got)
	}
	check(t, n, run(t, n, "", "images", "import", "-q", "-"), 1, "", "islet: import -: - is not an image archive\n")
	check(t, n, run(t, n, "", "images", "pull", "example.com/x"), 1, "",
		"example.com/x: downloading\nislet: pull example.com/x: no such host\n")
	n.Put(podtest.New("later", podtest.UID("uid-later"), podtest.Image("localhost/web:1")))
	if got := run(t, n, "", "images", "rm", "localhost/web:1"); got.Code == 0 ||
		!strings.Contains(got.Err, "is needed by pod default/later") || !strings.Contains(got.Err, "--force") {
		t.Errorf("an image that a pod needs: %+v", got)
	}
	check(t, n, run(t, n, "", "images", "rm", "--force", "localhost/web:1"), 0, "removed localhost/web:1\n", "")
	check(t, n, run(t, n, "", "images", "rm", "localhost/web:1"), command.ExitNotFound, "", "islet: image \"localhost/web:1\" not found\n")
}

func TestImagesList(t *testing.T) {
	n, _ := servertest.Start(t)
	check(t, n, run(t, n, "", "images", "ls"), 0, "IMAGE             ID             SIZE     AGE         USED BY\n"+
		"localhost/web:1   0123456789ab   5.0MiB   <unknown>   <none>\n", "")
	for _, name := range []string{"c", "a", "b"} {
		n.Pod(name, now, "web")
	}
	if got := run(t, n, "", "images", "ls", "--no-headers"); !strings.HasSuffix(got.Out, "default/a, default/b and 1 more\n") {
		t.Errorf("users: %+v", got)
	}
	if got := run(t, n, "", "images", "ls", "--no-headers", "-o", "wide"); !strings.HasSuffix(got.Out, "default/a, default/b, default/c\n") {
		t.Errorf("all users: %+v", got)
	}
	check(t, n, run(t, n, "", "images", "ls", "-q"), 0, "localhost/web:1\n", "")
	if got := run(t, n, "", "images", "ls", "-o", "xml"); got.Code != command.ExitUsage {
		t.Errorf("another format: %+v", got)
	}
}

func TestSystemDF(t *testing.T) {
	n, _ := startNode(t)
	want := "TYPE         TOTAL   IN USE   SIZE     RECLAIMABLE\n" +
		"Images       1       0        5.0MiB   5.0MiB (100%): islet images prune\n" +
		"Containers   0       0        0B       0B\nLogs         0       0        0B       0B\nEmptyDirs    0       0        0B       0B\n"
	check(t, n, run(t, n, "", "system", "df"), 0, want, "")
	check(t, n, run(t, n, "", "df"), 0, want, "")
	if got := run(t, n, "", "system", "df", "-o", "json"); got.Code != 0 || !strings.Contains(got.Out, `"reclaimable": 5242880`) {
		t.Errorf("JSON: %+v", got)
	}
	if got := run(t, n, "", "system", "df", "-o", "xml"); got.Code != command.ExitUsage {
		t.Errorf("another format: %+v", got)
	}
}
