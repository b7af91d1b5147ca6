package cni

import (
	"encoding/json"
	"path/filepath"
	"strings"

	"github.com/islet-edge/islet/internal/inputweight"
	"github.com/islet-edge/islet/internal/pattern"
	"github.com/islet-edge/islet/internal/regular"
)

// othersFiles matches the names of configuration files that podman, CRI-O and nerdctl install for their own containers, and of files that
// configure only a loopback interface.
var othersFiles = pattern.New(`^([0-9]+-podman([-.].*)?|[0-9]+-crio[-.].*|nerdctl-.*|[0-9]+-loopback)\.(conf|conflist|json)$`)

// OfAnother returns the name of another program that uses a configuration file for its own containers, or "" for other files. With
// networkPlugin auto, islet ignores the files of such programs. OfAnother recognizes most files by their names. It recognizes other files
// of podman and nerdctl by their content, because users of these programs can name networks freely.
func OfAnother(path string) string {
	name := filepath.Base(path)
	if m := othersFiles().FindString(name); m != "" {
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
	if inputweight.JSON(data, &c, maxMemory) != nil || json.Unmarshal(data, &c) != nil {
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

// CheckFile returns nil if a configuration file is valid and the built-in plugins support it, or the error. It does not check whether other
// plugins exist; use HasPlugin for that.
func CheckFile(binDirs []string, path string) error {
	list, err := loadConfig(path)
	if err != nil {
		return err
	}
	return checkFields(list, binDirs)
}
