package system

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// guide returns the blocks of commands in docs/raspberry-pi.md for root on an x86-64 machine. The page must also contain the command that
// removes islet.
func guide(t *testing.T, removal string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(machine.Root(t), "docs/raspberry-pi.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, steps, ok := strings.Cut(string(text), "\n## 2. ")
	steps, _, ok2 := strings.Cut(steps, "\n## 4. ")
	if !ok || !ok2 || !strings.Contains(steps, "`sudo "+removal+"`") {
		t.Fatal("the guide has no such steps")
	}
	var blocks []string
	for _, b := range regexp.MustCompile(`(?m)(^    .*\n)+`).FindAllString(steps, -1) {
		b = strings.NewReplacer("\n    ", "\n", "sudo ", "", "arm64", "amd64").Replace("\n" + b)
		if !strings.HasPrefix(strings.TrimSpace(b), "cgroup_enable=") { // text for the kernel's command line
			blocks = append(blocks, "set -e; cd /root; PATH=/usr/local/bin:$PATH\n"+b)
		}
	}
	return blocks
}

// TestGuide runs the unchanged commands of the guide for a board, with the archive and with the package. The system has no network.
func TestGuide(t *testing.T) {
	const archive, deb, look, image, pod, blocks = 0, 1, 2, 3, 4, 5
	const removal = "sh install.sh uninstall --purge islet-*-linux-arm64.tar.gz"
	steps := guide(t, removal)
	if len(steps) != blocks {
		t.Fatalf("the guide has the steps %q", steps)
	}
	for name, order := range map[string][]int{"archive": {archive, look, pod}, "deb": {deb, look, image, pod}} {
		t.Run(name, func(t *testing.T) {
			s := archived(t, Systemd)
			s.Run("rm -r /root/islet && cp /payload/islet.tar.gz /root/islet-9.0.0-linux-amd64.tar.gz && cp /payload/install.sh /root/ && cp /payload/islet.deb /root/islet_9.0.0-1_amd64.deb && mkdir -p /etc/kubernetes/manifests")
			for _, n := range order {
				if out := s.Run(steps[n]); n == archive && !strings.Contains(out, "the first pod serves a page: ") {
					t.Error(out)
				}
			}
			s.Await(`bash -c 'exec 3<>/dev/tcp/localhost/8081 && printf "GET / HTTP/1.0\r\n\r\n" >&3 && grep -q "^HTTP/1.0 200" <&3'`)
			s.Run("systemctl is-active islet.service && systemctl is-enabled islet.service")
			if name == "archive" {
				s.Run("cd /root && " + strings.ReplaceAll(removal, "arm64", "amd64") + " && " + nothing)
			}
		})
	}
}
