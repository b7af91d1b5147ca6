package ctrd

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandboxID names a sandbox by (namespace, name, UID, attempt). One that a tool makes
// is never that of a pod, whatever the tool calls it.
func sandboxID(c *api.PodSandboxConfig, tool bool) (string, error) {
	m := c.GetMetadata()
	if m.GetName() == "" || m.GetUid() == "" {
		return "", errors.New("sandbox configuration has no name or UID")
	}
	kind := "sandbox"
	if tool {
		kind = "tool's sandbox"
	}
	return hash(kind, m.GetNamespace(), m.GetName(), m.GetUid(), strconv.FormatUint(uint64(m.GetAttempt()), 10)), nil
}

// containerID names a container by (sandbox, name, attempt) and the boot that it is made in:
// a power cut may take the record of one that was shown, and its attempt is made again.
func containerID(boot, sandbox string, c *api.ContainerConfig) (string, error) {
	m := c.GetMetadata()
	if m.GetName() == "" {
		return "", errors.New("container configuration has no name")
	}
	return hash("container", boot, sandbox, m.GetName(), strconv.FormatUint(uint64(m.GetAttempt()), 10)), nil
}

// bootName names this boot, of which the kernel has an ID, in a file of its own: the directory is
// RunDir, of which nothing outlives a boot where it is in memory. Where it is not, the ID is
// another then. A file without one is of an older version of islet, which runs on in this boot.
// With an error it is a name that the next process does not know.
func bootName(runDir, id string) (string, error) {
	path, name := filepath.Join(runDir, "boot"), rand.Text()
	b, err := os.ReadFile(path)
	if known, of, _ := strings.Cut(string(b), " "); err == nil && len(known) == len(name) && (of == "" || of == id) {
		if name = known; of == id {
			return name, nil
		}
	}
	if err := os.WriteFile(path, []byte(name+" "+id), 0o600); err != nil {
		return name, fmt.Errorf("name this boot: %w", err)
	}
	return name, nil
}

func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}
