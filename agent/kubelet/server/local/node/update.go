package node

import (
	"context"
	"net/http"
	"net/url"
	"path"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/runtime/cri"
)

// An Updater installs other versions of islet. *update.Updater implements it.
type Updater interface {
	// Update fetches and verifies the archive at an absolute path or a URL, and starts its trial according to the
	// options. It reports the progress in bytes to the function tell. A total of 0 means that the total is unknown.
	Update(ctx context.Context, from string, o api.UpdateOptions, tell func(status string, current, total int64)) (api.Update, error)
	// Status returns what the node follows, and what it does with the version there.
	Status() api.UpdateStatus
}

func (n *Node) updateStatus(*http.Request) (any, error) { return n.Updates.Status(), nil }

func (n *Node) update(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	out := response.NewProgress(w, n.IdleTimeout)
	out.Flush()
	defer out.KeepAlive()()
	name := archiveName(q.Get("from"))
	if q.Has("back") {
		name = "previous version"
	}
	o := api.UpdateOptions{Older: q.Has("older"), Dry: q.Has("dryRun"), DespitePods: q.Has("despitePods"), Back: q.Has("back")}
	u, err := n.Updates.Update(r.Context(), q.Get("from"), o, func(status string, current, total int64) {
		out.SendProgress(cri.ImportProgress{Ref: name, Status: status, Current: current, Total: total})
	})
	out.SendResult(api.Progress{Update: &u}, err)
}

// archiveName returns the last element of a path or URL. The rest of a URL is not shown, because it may contain a password.
func archiveName(from string) string {
	if u, err := url.Parse(from); err == nil {
		from = u.Path
	}
	return path.Base(from)
}
