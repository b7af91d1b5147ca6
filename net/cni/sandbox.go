package cni

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"regexp"

	"github.com/islet-edge/islet/net/portmap"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// errExist is what an error of the kernel wraps when an interface exists.
var errExist = fs.ErrExist

// idPattern is what CNI allows in a container ID. It also makes it a file name.
var idPattern = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.\-]{0,127}$`)

func validID(id string) error {
	if !idPattern.MatchString(id) {
		return fmt.Errorf("sandbox ID %.140q is not possible", id)
	}
	return nil
}

// vethPattern matches the names of veths that are islet's own.
var vethPattern = regexp.MustCompile(`^isl[0-9a-f]{12}$`)

// vethName derives the name of the node's end of a sandbox's veth.
func vethName(id string) string {
	sum := sha256.Sum256([]byte(id))
	return "isl" + hex.EncodeToString(sum[:6])
}

// mappings returns the host ports that a sandbox asks for.
func mappings(cfg *api.PodSandboxConfig) []portmap.Mapping {
	var out []portmap.Mapping
	for _, p := range cfg.GetPortMappings() {
		if p.GetHostPort() <= 0 {
			continue
		}
		out = append(out, portmap.Mapping{HostPort: int(p.HostPort), ContainerPort: int(p.ContainerPort), Protocol: p.Protocol.String(), HostIP: p.HostIp})
	}
	return out
}

// podName is namespace/name of a sandbox's pod, or nothing.
func podName(cfg *api.PodSandboxConfig) string {
	if m := cfg.GetMetadata(); m.GetName() != "" {
		return m.GetNamespace() + "/" + m.GetName()
	}
	return ""
}
