package cni

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/islet-edge/islet/internal/regular"
	"github.com/islet-edge/islet/internal/weight"
)

// othersFiles are the names of configuration files that container programs install for
// their own containers: podman, CRI-O and nerdctl. A loopback alone is no pod network.
var othersFiles = regexp.MustCompile(`^([0-9]+-podman([-.].*)?|[0-9]+-crio[-.].*|nerdctl-.*|[0-9]+-loopback)\.(conf|conflist|json)$`)

// OfAnother names the program whose own network a configuration file describes, or
// returns "". networkPlugin auto leaves such files alone. The decision follows from the
// file's name, and for networks that podman and nerdctl made with a name of the user's,
// from what they write into each.
func OfAnother(path string) string {
	name := filepath.Base(path)
	if m := othersFiles.FindString(name); m != "" {
		for _, program := range []string{"podman", "crio", "nerdctl"} {
			if strings.Contains(name, program) {
				return program
			}
		}
		return "loopback"
	}
	data, err := regular.Read(path, maxConf)
	if err != nil {
		return ""
	}
	var c struct {
		NerdctlID *json.RawMessage `json:"nerdctlID"`
		Plugins   []struct {
			Bridge string `json:"bridge"`
		} `json:"plugins"`
	}
	if weight.JSON(data, &c, maxMemory) != nil || json.Unmarshal(data, &c) != nil {
		return ""
	}
	if c.NerdctlID != nil {
		return "nerdctl"
	}
	for _, p := range c.Plugins {
		if strings.HasPrefix(p.Bridge, "cni-podman") {
			return "podman"
		}
	}
	return ""
}

// Broken returns what is wrong with a configuration file, or nil. Whether its plugins are there
// is not looked at, see Has.
func Broken(path string) error {
	_, err := load(path)
	return err
}

// stepsIn reports whether the built-in network replaces configurations that err keeps from
// use. It does not in a cluster, whose control plane expects the node on their network.
func (n *Network) stepsIn(err error) bool { return n.plugins.confs.skip && err != nil }
