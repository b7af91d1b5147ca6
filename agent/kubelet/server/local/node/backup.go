package node

import (
	"net/http"
	"time"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
)

// BackupOptions say what an archive of the node contains in addition.
type BackupOptions struct {
	Version string   // of islet
	Bundles bool     // the bundles that the node keeps
	Include []string // further files and directories, as absolute paths
}

// backupIdle is the timeout of a write of an archive.
const backupIdle = time.Minute

// backup responds with an archive of the node. If the archive cannot be completed, the response is aborted.
func (n *Node) backup(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	out := response.NewStream(w, "application/x-tar", min(n.IdleTimeout, backupIdle)) // a client that hangs must not prevent other backups
	err := n.Backup(r.Context(), out, BackupOptions{Version: n.Version, Bundles: q.Has("bundles"), Include: q["include"]})
	switch {
	case err == nil:
	case !out.HasBegun():
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		n.Log.Error("a backup was not completed", "error", err)
		out.Abort()
	}
}
