package credentials

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/keyring"
	"github.com/islet-edge/islet/internal/untrusted"
)

const (
	nodeTTL        = 5 * time.Minute // how long the configuration is cached
	maxConfigBytes = 1 << 20         // maximum size of one file
)

// node provides the credentials from this machine's docker configuration. They are valid for every pod.
// https://kubernetes.io/docs/concepts/containers/images/#configuring-nodes-to-authenticate-to-a-private-registry
type node struct {
	root string // the kubelet's root directory
	log  *slog.Logger

	mu   sync.Mutex
	ring keyring.Ring
	read time.Time // result of the last read; zero if nothing was read
}

// lookup returns the credentials for an image. It reads the files if the cache has expired.
func (n *node) lookup(image string) []keyring.Credential {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.read.IsZero() || time.Since(n.read) >= nodeTTL {
		n.ring, n.read = n.readFirst(), time.Now()
	}
	return n.ring.Lookup(image)
}

// readFirst returns the credentials of the first readable file. It first searches for config.json, and then for
// .dockercfg, in the kubelet's root directory, the working directory, the home directory, and the root directory.
func (n *node) readFirst() keyring.Ring {
	home, _ := os.UserHomeDir()
	here, _ := os.Getwd()
	for _, file := range []struct {
		dir, name string
		legacy    bool
	}{
		{n.root, "config.json", false}, {here, "config.json", false}, {dockerDir(home), "config.json", false}, {"/.docker",
			"config.json", false},
		{n.root, ".dockercfg", true}, {here, ".dockercfg", true}, {home, ".dockercfg", true}, {"/", ".dockercfg", true},
	} {
		if file.dir == "" {
			continue
		}
		path := filepath.Join(file.dir, file.name)
		data, err := untrusted.ReadInRoot("/", path, maxConfigBytes)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var ring keyring.Ring
		if err == nil {
			err = ring.AddFile(data, file.legacy, v1.ObjectReference{})
		}
		if err != nil {
			n.log.Warn("a docker configuration of the node is invalid or partly invalid", "file", path, "error", err)
		}
		if err == nil || len(ring) > 0 {
			return ring
		}
	}
	return nil
}

func dockerDir(home string) string {
	if home == "" {
		return ""
	}
	return filepath.Join(home, ".docker")
}
