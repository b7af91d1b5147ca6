package cni

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/islet-edge/islet/internal/regular"
	"github.com/islet-edge/islet/internal/weight"
)

// othersFiles matches the names of configuration files that podman, CRI-O and nerdctl install for their own containers, and of files that
// configure only a loopback interface.
var othersFiles = regexp.MustCompile(`^([0-9]+-podman([-.].*)?|[0-9]+-crio[-.].*|nerdctl-.*|[0-9]+-loopback)\.(conf|conflist|json)$`)

// OfAnother returns the name of the program that uses a configuration file for its own containers, or "". networkPlugin auto ignores such
// files. OfAnother recognizes files by their names, and user-named networks of podman and nerdctl by the content of their files.
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

// CheckFile returns the error of an invalid configuration file, or nil if the file is valid. It does not check whether the plugins exist;
// use HasPlugin for that.
func CheckFile(path string) error {
	_, err := load(path)
	return err
}

// fallsBack reports whether the node uses the built-in network because the configuration fails with err. In a cluster it returns false,
// because the control plane expects the node on the configured network.
func (n *Network) fallsBack(err error) bool { return n.plugins.confs.skipUnusable && err != nil }
