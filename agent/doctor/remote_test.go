package doctor

import (
	"context"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/islet-edge/islet/internal/config"
)

func TestCrictl(t *testing.T) {
	const ours = "/run/containerd/containerd.sock"
	for _, c := range []struct {
		name, text string
		mode       fs.FileMode
		socket     string
		want       string // severity; empty: no finding
		says       string
	}{
		{name: "right", text: "runtime-endpoint: unix://" + ours + "\nimage-endpoint: unix://" + ours + "\ntimeout: 10\n", socket: ours, want: "ok"},
		{name: "right, only a path", text: "runtime-endpoint: " + ours, socket: ours, want: "ok"},
		{name: "its images elsewhere", text: "runtime-endpoint: " + ours + "\nimage-endpoint: unix:///run/images.sock", socket: ours, want: "ok"},
		{name: "another", text: "runtime-endpoint: unix:///run/crio/crio.sock", socket: ours, want: "warning", says: "runtime-endpoint in /etc/crictl.yaml is \"unix:///run/crio/crio.sock\""},
		{name: "another's images", text: "runtime-endpoint: " + ours + "\nimage-endpoint: unix:///run/x", socket: ours, want: "warning", says: "image-endpoint"},
		{name: "says none", text: "debug: true", socket: ours, want: "ok"},
		{name: "no YAML", text: "{", socket: ours, want: "warning", says: "cannot be read"},
		{name: "another type", text: "runtime-endpoint: [a]", socket: ours, want: "warning", says: "cannot be read"},
		{name: "too large", text: strings.Repeat("#", maxCrictl+1), socket: ours, want: "warning", says: "too large"},
		{name: "a pipe", mode: fs.ModeNamedPipe, socket: ours, want: "warning", says: "not a regular file"},
		{name: "nothing is served", text: "runtime-endpoint: unix:///run/crio/crio.sock"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &checkup{Input: Input{Host: fstest.MapFS{crictlConfig: {Data: []byte(c.text), Mode: c.mode}}, CRISocket: c.socket, ImageSocket: "/run/images.sock"}}
			p.checkCrictl(t.Context())
			if c.want == "" {
				if len(p.findings) != 0 {
					t.Errorf("%+v", p.findings)
				}
				return
			}
			if f := p.findings; len(f) != 1 || f[0].Severity.String() != c.want || !strings.Contains(f[0].What, c.says) || c.want != "ok" &&
				!strings.Contains(f[0].Advice, ours) {
				t.Errorf("%+v", f)
			}
		})
	}
	p := &checkup{Input: Input{Host: fstest.MapFS{}, CRISocket: ours}}
	if p.checkCrictl(t.Context()); len(p.findings) != 0 {
		t.Errorf("without the file: %+v", p.findings)
	}
}

func TestSockets(t *testing.T) {
	own := config.Config{}
	own.Edge.CRISocket = "/run/islet/cri.sock"
	for _, c := range []struct {
		cfg           config.Config
		runtime, imgs string
	}{
		{config.Config{}, "", ""},
		{own, "/run/islet/cri.sock", "/run/islet/cri.sock"},
		{config.Config{RuntimeEndpoint: "unix:///run/a", ImageEndpoint: "unix:///run/b"}, "/run/a", "/run/b"},
	} {
		if r, i := criSockets(&c.cfg); r != c.runtime || i != c.imgs {
			t.Errorf("got %q and %q, want %q and %q", r, i, c.runtime, c.imgs)
		}
	}
}

func TestMoved(t *testing.T) {
	for _, left := range []string{"", "Islet's own runtime keeps 3 images; to free their space: rm -r /a"} {
		p := &checkup{Input: Input{Leftovers: func(context.Context) string { return left }}}
		p.checkMove(t.Context())
		if left == "" && len(p.findings) != 0 || left != "" &&
			(len(p.findings) != 1 || p.findings[0].Severity != Info || !strings.Contains(p.findings[0].What, left)) {
			t.Errorf("%q: %+v", left, p.findings)
		}
	}
}
