package cni

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"

	"github.com/islet-edge/islet/internal/pattern"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// errExist means that an interface already exists.
var errExist = fs.ErrExist

// idPattern matches container IDs that the CNI specification allows. Such an ID is also a valid file name.
var idPattern = pattern.New(`^[a-zA-Z0-9][a-zA-Z0-9_.\-]{0,127}$`)

func validID(id string) error {
	if !idPattern().MatchString(id) {
		return fmt.Errorf("invalid sandbox ID %.140q", id)
	}
	return nil
}

// vethPattern matches the names of islet's own veths.
var vethPattern = pattern.New(`^isl[0-9a-f]{12}$`)

// vethName returns the name of the node's end of a sandbox's veth pair.
func vethName(id string) string {
	sum := sha256.Sum256([]byte(id))
	return "isl" + hex.EncodeToString(sum[:6])
}

// podName returns the pod of a sandbox as namespace/name, or "" if the configuration does not contain the pod.
func podName(cfg *api.PodSandboxConfig) string {
	if m := cfg.GetMetadata(); m.GetName() != "" {
		return m.GetNamespace() + "/" + m.GetName()
	}
	return ""
}
