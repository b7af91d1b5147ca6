package doctor

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/config"
)

// crictlConfig is where crictl reads which socket it asks:
// https://kubernetes.io/docs/tasks/debug/debug-cluster/crictl/
const crictlConfig = "etc/crictl.yaml"

// maxCrictl bounds that file. crictl's own has a handful of lines.
const maxCrictl = 64 << 10

// moved says what the move to another container runtime left behind.
func (p *patient) moved(ctx context.Context) {
	if p.Left == nil {
		return
	}
	if left := p.Left(ctx); left != "" {
		p.add("former-runtime", Info, "free the space if the node is not to go back",
			"this node has moved to another container runtime. %s", left)
	}
}

// crictl looks whether crictl asks the runtime that this node's pods run in.
func (p *patient) crictl(context.Context) {
	if p.CRISocket == "" { // nowhere is right
		return
	}
	text, err := p.small(crictlConfig, maxCrictl)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var c struct {
		Runtime string `json:"runtime-endpoint"`
		Image   string `json:"image-endpoint"`
	}
	if err == nil {
		err = yaml.Unmarshal(text, &c)
	}
	right := "write runtime-endpoint: unix://" + p.CRISocket + " to /etc/crictl.yaml"
	if err != nil {
		p.add("crictl", Warning, right, "/etc/crictl.yaml cannot be read: %.200v", err)
		return
	}
	for _, e := range []struct {
		field, value string
		right        []string
	}{{"runtime-endpoint", c.Runtime, []string{p.CRISocket}}, {"image-endpoint", c.Image, []string{p.CRISocket, p.ImageSocket}}} {
		if e.value != "" && !slices.Contains(e.right, socketPath(e.value)) {
			p.add("crictl", Warning, right, "%s in /etc/crictl.yaml is %.200q, but this node's pods are seen at %s: crictl shows "+
				"something else", e.field, e.value, p.CRISocket)
			return
		}
	}
	p.add("crictl", OK, "", "crictl asks the runtime of this node's pods")
}

// socketPath is the path of an endpoint; crictl takes one without a scheme too.
func socketPath(endpoint string) string {
	return path.Clean(strings.TrimPrefix(endpoint, "unix://"))
}

// small reads a regular file of the host of at most that many bytes. A link in its place is
// followed, as by who reads the file otherwise: only root can have made it.
func (p *patient) small(name string, most int64) ([]byte, error) {
	info, err := fs.Stat(p.Host, name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // opening a pipe would wait
		return nil, errors.New("it is no file")
	}
	f, err := p.Host.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		return nil, errors.New("it is too large")
	}
	return text, err
}

// sockets are where the runtime of a configuration, and its images, are served; empty:
// nowhere.
func sockets(cfg *config.Config) (runtime, images string) {
	if cfg.RuntimeEndpoint != "" {
		return socketPath(cfg.RuntimeEndpoint), socketPath(cfg.ImageEndpoint)
	}
	if cfg.Edge.CRISocket == "" {
		return "", ""
	}
	return socketPath(cfg.Edge.CRISocket), socketPath(cfg.Edge.CRISocket)
}

// askLeft asks the agent at a socket what a move left behind.
func askLeft(ctx context.Context, socket string) string {
	var st api.Status
	if !askAgent(ctx, socket, api.PathStatus, &st) {
		return ""
	}
	return st.Runtime.Left
}
