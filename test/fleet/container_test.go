package fleet

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
	"github.com/islet-edge/islet/test/system"
)

// TestContainer starts the container image with podman as packaging/container/README.md says. The pod in the image must become Ready and
// serve its page, also after a restart of the container.
func TestContainer(t *testing.T) {
	image := os.Getenv("ISLET_IMAGE")
	if image == "" {
		t.Skip("no container image: make test-container")
	}
	s := boot(t, programs, system.Systemd, map[string]string{"islet-" + version + "-image-amd64.tar": image})
	text, err := os.ReadFile(filepath.Join(machine.Root(t), "packaging/container/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile(`(?m)(^    .*\n)+`).FindAllString(string(text), -1)
	run := func(n int) {
		t.Helper()
		s.Run("set -e; cd /payload; export PODMAN_IGNORE_CGROUPSV1_WARNING=1\n" + strings.NewReplacer("\n    ", "\n", "sudo ", "").Replace("\n"+blocks[n]))
	}
	const start, look, end, blockCount = 0, 1, 2, 3
	if len(blocks) != blockCount {
		t.Fatalf("the README has the steps %q", blocks)
	}
	run(start)
	ready := func() {
		t.Helper()
		s.Await("podman exec islet islet pods --no-headers 2>&1 | grep -q '^web-.* 1/1 *Running' || { podman logs islet 2>&1 | tail -20; podman exec islet islet pods; exit 1; }")
		if page := s.Await("curl -fsS http://localhost:8080/"); !strings.Contains(page, "web-islet") {
			t.Errorf("the page is %q", page)
		}
	}
	ready()
	run(look)
	if out := s.Run("podman exec islet islet doctor"); strings.Contains(out, "state-") || strings.Contains(out, "run-tmpfs") {
		t.Errorf("the options of podman are not the best:\n%s", out)
	}
	s.Run("podman restart -t 10 islet")
	ready()
	run(end)
	s.Run("! pgrep -x demo && ! pgrep -x islet && [ -z \"$(podman volume ls -q)\" ]")
}
