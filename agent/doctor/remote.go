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

// crictlConfig is crictl's configuration file: https://kubernetes.io/docs/tasks/debug/debug-cluster/crictl/
const crictlConfig = "etc/crictl.yaml"

// maxCrictl is the maximum size in bytes of this file. The file usually has only a few lines.
const maxCrictl = 64 << 10

// checkMove reports the leftovers of a move to another container runtime.
func (p *checkup) checkMove(ctx context.Context) {
	if p.Leftovers == nil {
		return
	}
	if left := p.Leftovers(ctx); left != "" {
		p.add("former-runtime", Info, "free the space unless the node may move back",
			"this node has moved to another container runtime. %s", left)
	}
}

// checkCrictl checks that crictl uses the runtime of this node's pods.
func (p *checkup) checkCrictl(context.Context) {
	if p.CRISocket == "" { // crictl has no socket to use
		return
	}
	text, err := p.readSmall(crictlConfig, maxCrictl)
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
			p.add("crictl", Warning, right, "%s in /etc/crictl.yaml is %.200q, but the socket of this node's pods is %s: crictl shows "+
				"another runtime", e.field, e.value, p.CRISocket)
			return
		}
	}
	p.add("crictl", OK, "", "crictl uses the runtime of this node's pods")
}

// socketPath returns the path of an endpoint. Like crictl, it accepts an endpoint without a scheme.
func socketPath(endpoint string) string {
	return path.Clean(strings.TrimPrefix(endpoint, "unix://"))
}

// readSmall reads a regular file of the host. A file of more than limit bytes is an error. It follows symbolic links,
// because other programs that read the file follow them too. This is safe, because only root can create a link at
// such a path.
func (p *checkup) readSmall(name string, limit int64) ([]byte, error) {
	info, err := fs.Stat(p.Host, name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // opening a pipe would block
		return nil, errors.New("it is not a regular file")
	}
	f, err := p.Host.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		return nil, errors.New("it is too large")
	}
	return text, err
}

// criSockets returns the paths of the sockets of a configuration's runtime and image service. It returns "" for a
// socket that the configuration does not have.
func criSockets(cfg *config.Config) (runtime, images string) {
	if cfg.RuntimeEndpoint != "" {
		return socketPath(cfg.RuntimeEndpoint), socketPath(cfg.ImageEndpoint)
	}
	if cfg.Edge.CRISocket == "" {
		return "", ""
	}
	return socketPath(cfg.Edge.CRISocket), socketPath(cfg.Edge.CRISocket)
}

// askLeftovers requests the leftovers of a move to another container runtime from the agent at a socket.
func askLeftovers(ctx context.Context, socket string) string {
	var st api.Status
	if !askAgent(ctx, socket, api.PathStatus, &st) {
		return ""
	}
	return st.Runtime.Left
}
