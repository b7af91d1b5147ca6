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

// bootName names this boot of the machine, in a file of its own: the directory is RunDir,
// of which nothing outlives a boot. With an error it is a name that the next process does not
// know.
func bootName(runDir string) (string, error) {
	path, name := filepath.Join(runDir, "boot"), rand.Text()
	if b, err := os.ReadFile(path); err == nil && len(b) == len(name) {
		return string(b), nil
	}
	if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
		return name, fmt.Errorf("name this boot: %w", err)
	}
	return name, nil
}

func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}
