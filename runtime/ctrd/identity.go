package ctrd

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
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

// containerID names a container by (sandbox, name, attempt).
func containerID(sandbox string, c *api.ContainerConfig) (string, error) {
	m := c.GetMetadata()
	if m.GetName() == "" {
		return "", errors.New("container configuration has no name")
	}
	return hash("container", sandbox, m.GetName(), strconv.FormatUint(uint64(m.GetAttempt()), 10)), nil
}

func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}
