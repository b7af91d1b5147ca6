package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"syscall"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/internal/api"
	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/runtime/cri"
)

// BundleTrials applies and reverts bundles. *bundle.Node implements it.
type BundleTrials interface {
	Status() (api.Bundles, error)
	// State returns the signed state of the node.
	State(ctx context.Context) (*bundle.SignedState, error)
	// Apply verifies the bundle in a file or directory, and starts its trial. If older is true, the number of the bundle may be lower than
	// the highest one of its name. Apply reports the progress to the function tell. A total of 0 means that the total is unknown.
	Apply(ctx context.Context, from string, older bool, tell func(status string, current, total int64)) (api.Bundle, error)
	// Revert ends the trial of a bundle, or returns to the previous bundle.
	Revert(ctx context.Context) (api.Bundles, error)
}

func (n *Node) addBundlePaths(paths map[string]http.HandlerFunc) {
	paths["GET "+api.PathBundle] = response.JSON(n.listBundles)
	paths["GET "+api.PathBundleState] = response.JSON(n.getBundleState)
	paths["POST "+api.PathBundle] = n.applyBundle
	paths["POST "+api.PathBundleRevert] = response.JSON(n.revertBundle)
}

func (n *Node) listBundles(*http.Request) (any, error) { return n.BundleTrials.Status() }

func (n *Node) getBundleState(r *http.Request) (any, error) {
	return n.BundleTrials.State(r.Context())
}

func (n *Node) revertBundle(r *http.Request) (any, error) {
	done, err := n.BundleTrials.Revert(r.Context())
	return done, unprocessableError(err)
}

func (n *Node) applyBundle(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	out := response.NewProgress(w, n.IdleTimeout)
	out.Flush()
	defer out.KeepAlive()()
	name := archiveName(q.Get("from"))
	b, err := n.BundleTrials.Apply(r.Context(), q.Get("from"), q.Has("older"), func(status string, current, total int64) {
		out.SendProgress(cri.ImportProgress{Ref: name, Status: status, Current: current, Total: total})
	})
	out.SendResult(api.Progress{Bundle: &b}, adviseOnMedium(q.Get("from"), err))
}

// adviseOnMedium adds advice to an error of the disk that has the bundle, such as a stick that was pulled out.
func adviseOnMedium(from string, err error) error {
	file := &fs.PathError{}
	failed := errors.As(err, &file) && (errors.Is(file, syscall.EIO) || errors.Is(file, syscall.ENODEV) || errors.Is(file, syscall.ENXIO))
	if inside, e := filepath.Rel(from, file.Path); !failed || e != nil || !filepath.IsLocal(inside) {
		return err
	}
	return fmt.Errorf("%w: is the medium still there? The pods have not changed. Mount it again or copy the bundle to this node, "+
		"and apply it again", err)
}
