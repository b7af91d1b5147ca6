package change

import (
	"strings"

	"github.com/islet-edge/islet/internal/printable"
)

// FilesText describes the configuration files that an agent has read.
func FilesText(files []string) string {
	if len(files) == 0 {
		return "no files; /etc/islet/kubelet.yaml and /etc/islet/edge.yaml are read if they exist"
	}
	return printable.Line(strings.Join(files, ", "))
}
