package images

import (
	"net/http"
)

// pruneImages removes unused images. With ?dryRun it only lists them.
func (im *Images) pruneImages(r *http.Request) (any, error) {
	return im.Garbage.Prune(r.Context(), r.URL.Query().Has("dryRun")), nil
}
