package images

import (
	"cmp"
	"net/http"

	crapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/agent/kubelet/server/response"
	"github.com/islet-edge/islet/runtime/cri"
)

// importImage imports the archive in the body of the request, and sends its progress.
func (im *Images) importImage(w http.ResponseWriter, r *http.Request) {
	archives, ok := im.Store.(cri.Archives)
	if !ok {
		response.WriteError(w,
			response.Refuse(http.StatusNotImplemented, "this container runtime cannot import archives: use its own tool"))
		return
	}
	out := response.NewProgress(w, im.IdleTimeout)
	out.EnableFullDuplex()
	out.Flush()
	name := cmp.Or(r.URL.Query().Get("name"), "archive")
	defer out.KeepAlive()()
	refs, err := archives.ImportArchive(r.Context(), out.BodyReader(r.Body), name, out.SendProgress)
	out.SendImages(refs, err)
}

// pullImage pulls the image ?ref= from its registry, and sends the progress.
func (im *Images) pullImage(w http.ResponseWriter, r *http.Request) {
	ref := r.URL.Query().Get("ref")
	out := response.NewProgress(w, im.IdleTimeout)
	out.Flush()
	defer out.KeepAlive()()
	req := &crapi.PullImageRequest{Image: &crapi.ImageSpec{Image: ref}}
	var err error
	if archives, ok := im.Store.(cri.Archives); ok {
		_, err = archives.PullWithProgress(r.Context(), req, out.SendProgress)
	} else {
		_, err = im.Store.PullImage(r.Context(), req)
	}
	out.SendImages([]string{ref}, err)
}
