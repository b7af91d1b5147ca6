package cni

import (
	"encoding/json"
	"errors"
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

// missingPlugin is the error of a configuration whose plugin is in no directory.
type missingPlugin struct{ error }

func (e missingPlugin) Unwrap() error { return e.error }

// stepsIn reports whether the built-in network takes the place of a configuration that
// err keeps from use: only its plugins are missing, and no control plane expects the
// node on that network.
func (n *Network) stepsIn(err error) bool {
	return n.cfg.Alone && n.cfg.Mode == Auto && errors.As(err, new(missingPlugin))
}
