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

// sandboxID derives a sandbox's ID from (namespace, name, UID, attempt). A sandbox of a tool never gets the ID of a pod's sandbox, even if
// the tool sends the same metadata.
func sandboxID(c *api.PodSandboxConfig, tool bool) (string, error) {
	m := c.GetMetadata()
	if m.GetName() == "" || m.GetUid() == "" {
		return "", errors.New("sandbox configuration has no name or UID")
	}
	kind := "sandbox"
	if tool {
		kind = "tool's sandbox"
	}
	return hashParts(kind, m.GetNamespace(), m.GetName(), m.GetUid(), strconv.FormatUint(uint64(m.GetAttempt()), 10)), nil
}

// containerID derives a container's ID from (sandbox, name, attempt) and the boot. A power cut may
// destroy the record of a container whose ID was already reported. After such a power cut, the same
// attempt gets a new ID.
func containerID(boot, sandbox string, c *api.ContainerConfig) (string, error) {
	m := c.GetMetadata()
	if m.GetName() == "" {
		return "", errors.New("container configuration has no name")
	}
	return hashParts("container", boot, sandbox, m.GetName(), strconv.FormatUint(uint64(m.GetAttempt()), 10)), nil
}

// bootName returns a random name for this boot. It stores the name in runDir, together with the kernel's boot ID. If runDir is in memory, a
// reboot removes the file. Otherwise the stored boot ID differs from the kernel's boot ID after a reboot. A file without a boot ID was
// written by an older version of islet in the current boot. If the file cannot be written, bootName returns a valid name and an error, and
// later processes will use another name.
func bootName(runDir, id string) (string, error) {
	path, name := filepath.Join(runDir, "boot"), rand.Text()
	b, err := os.ReadFile(path)
	stored, boot, _ := strings.Cut(string(b), " ")
	if err == nil && len(stored) == len(name) && (boot == "" || boot == id) {
		name = stored
		if boot == id {
			return name, nil
		}
	}
	if err := os.WriteFile(path, []byte(name+" "+id), 0o600); err != nil {
		return name, fmt.Errorf("store the name of this boot: %w", err)
	}
	return name, nil
}

func hashParts(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}
