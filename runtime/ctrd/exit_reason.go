package ctrd

import "github.com/islet-edge/islet/runtime/shim/wire"

// Reasons and exit codes of ended containers. All but ShimLost are the same as in containerd.
const (
	reasonCompleted = "Completed"
	reasonError     = "Error"
	reasonOOM       = "OOMKilled"
	reasonUnknown   = "Unknown"  // the end was not observed, for example because of a reboot
	reasonShimLost  = "ShimLost" // the container was killed because its shim died

	codeUnknown = 255
	codeKilled  = 137
)

func reasonOf(e wire.Exit) string {
	switch {
	case e.OOM:
		return reasonOOM
	case e.Code == 0:
		return reasonCompleted
	}
	return reasonError
}
